#include <fmt/format.h>

#include "api/c/c_handles.hpp"
#include "format/model/scalar_json.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt::c {
namespace {

struct Kept {
  Error error{};
  bool failed = false;
  std::string json{};
};
thread_local Kept kept;

void put(json::Writer& out, std::string_view key, std::string_view value) {
  if (!value.empty()) out.member(key, universal::shown_text(value));  // names of files may be any bytes
}

}  // namespace

int keep(const Error& error) {
  kept.error = error;
  kept.failed = true;
  return exit_code(error);
}

int keep_nothing() {
  kept.failed = false;
  return 0;
}

}  // namespace ckpt::c

const char* ckpt_last_error_json(void) {
  using ckpt::c::kept;
  if (!kept.failed) return "{}";
  const ckpt::Error& error = kept.error;
  try {
    kept.json.clear();
    ckpt::json::Writer out(kept.json);
    out.begin_object().member("id", fmt::format("CKPT-E{}", static_cast<int>(error.code)));
    out.member("code", exit_code(error));
    ckpt::c::put(out, "message", error.message);
    ckpt::c::put(out, "file", error.file);
    if (error.offset) out.member("offset", *error.offset);
    ckpt::c::put(out, "tensor", error.tensor);
    ckpt::c::put(out, "hint", error.hint);
    out.end_object();
    return kept.json.c_str();
  } catch (const std::bad_alloc&) {
    return R"({"id":"CKPT-E1700","code":17,"message":"out of memory"})";
  }
}
