#include <fmt/format.h>

#include "api/c/c_handles.hpp"
#include "format/model/scalar_json.hpp"
#include "format/text/json.hpp"

namespace ckpt::c {
namespace {

struct Kept {
  Error error{};
  bool failed = false;
  std::string json{};
};
thread_local Kept kept;

void append(std::string& text, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  text += fmt::format(",\"{}\":", key);
  json::append_quoted(text, universal::shown_text(value));  // names of files may be any bytes
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
    std::string text = fmt::format("{{\"id\":\"CKPT-E{}\",\"code\":{}", static_cast<int>(error.code), exit_code(error));
    ckpt::c::append(text, "message", error.message);
    ckpt::c::append(text, "file", error.file);
    if (error.offset) text += fmt::format(",\"offset\":{}", *error.offset);
    ckpt::c::append(text, "tensor", error.tensor);
    ckpt::c::append(text, "hint", error.hint);
    kept.json = text + "}";
    return kept.json.c_str();
  } catch (const std::bad_alloc&) {
    return R"({"id":"CKPT-E1700","code":17,"message":"out of memory"})";
  }
}
