#include "api/catalog/last_run.hpp"

#include <memory>
#include <utility>

#include "catalog/scan/utc.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "format/model/value.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kLastRunFormat = "ckpt.last-run/1";
constexpr std::uint64_t kMostLastRunBytes = std::uint64_t{64} << 10;

std::string last_run_path(const std::string& store, LastRun::Kind kind) {
  return join_path(join_path(store, kStoreDirectory),
                   kind == LastRun::Kind::prune ? "last-prune.json" : "last-verify.json");
}

std::uint64_t natural_in(const json::Value& root, std::string_view key) {
  const json::Value* value = root.find(key);
  return value != nullptr && value->natural() != nullptr ? *value->natural() : 0;
}

std::string text_in(const json::Value& root, std::string_view key) {
  const json::Value* value = root.find(key);
  return value != nullptr && value->text() != nullptr ? *value->text() : std::string();
}

}  // namespace

std::optional<LastRun> read_last_run(Io& io, const std::string& store, LastRun::Kind kind) {
  const auto text = read_small_file(io, last_run_path(store, kind), kMostLastRunBytes);
  if (!text) return std::nullopt;
  const auto root = json::parse(*text);
  if (!root || text_in(*root, "format") != kLastRunFormat) return std::nullopt;
  const auto at = catalog::parse_time(text_in(*root, "at"));
  if (!at) return std::nullopt;
  return LastRun{.kind = kind,
                 .at = *at,
                 .by = text_in(*root, "by"),
                 .exit_code = static_cast<int>(natural_in(*root, "exit_code")),
                 .count = natural_in(*root, "count"),
                 .problems = natural_in(*root, "problems"),
                 .bytes = natural_in(*root, "bytes"),
                 .count_total = natural_in(*root, "count_total"),
                 .bytes_total = natural_in(*root, "bytes_total")};
}

void record_last_run(Io& io, const std::string& store, LastRun run) {
  // Nothing is written through a link.
  const auto held = hold_store(io, store);
  const auto place = held ? hold_directory(io, join_path(store, kStoreDirectory), {})
                          : Result<std::unique_ptr<HeldDirectory>>(fail(held.error()));
  if (!place) return;
  if (const auto before = read_last_run(io, store, run.kind)) {
    run.count_total = before->count_total;
    run.bytes_total = before->bytes_total;
  }
  std::string text;
  json::Writer out(text);
  out.begin_object().member("format", kLastRunFormat).member("at", catalog::time_text(run.at));
  out.member("by", is_utf8(run.by) ? run.by : std::string()).member("exit_code", run.exit_code);
  out.member("count", run.count).member("problems", run.problems).member("bytes", run.bytes);
  out.member("count_total", run.count_total + run.count).member("bytes_total", run.bytes_total + run.bytes);
  out.end_object();
  static_cast<void>(replace_shared_file(io, last_run_path(store, run.kind), text + '\n'));
}

}  // namespace ckpt
