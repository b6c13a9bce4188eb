#include "catalog/trash/record.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "format/model/value.hpp"
#include "format/text/json.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::string_view kFormat = "ckpt.trash/1";
constexpr std::array<const char*, 5> kStates{"trashed", "purging", "purged", "restored", "restoring"};

void append_text(std::string& out, std::string_view key, std::string text) {
  if (!is_utf8(text)) {
    for (char& c : text) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  out += fmt::format(",\n \"{}\":", key);
  json::append_quoted(out, text);
}

/// Milliseconds since 1970; whoever sets a clock before that gets 0.
void append_time(std::string& out, std::string_view key, Time time) {
  const auto ms = time.time_since_epoch().count();
  out += fmt::format(",\n \"{}\":{}", key, ms < 0 ? 0 : ms);
}

Error bad(std::string_view member) {
  return {.code = Errc::corrupt, .message = fmt::format("trash record: '{}' is missing or wrong", member)};
}

Result<std::string> text_of(const json::Value& root, std::string_view key) {
  const json::Value* value = root.find(key);
  if (value == nullptr || value->text() == nullptr) return fail(bad(key));
  return *value->text();
}

Result<std::uint64_t> natural_of(const json::Value& root, std::string_view key) {
  const json::Value* value = root.find(key);
  if (value == nullptr || value->natural() == nullptr) return fail(bad(key));
  return *value->natural();
}

Result<Time> time_of(const json::Value& root, std::string_view key) {
  CKPT_TRY(const std::uint64_t ms, natural_of(root, key));
  if (ms > INT64_MAX) return fail(bad(key));
  return Time(Duration(static_cast<std::int64_t>(ms)));
}

}  // namespace

const char* state_name(TrashRecord::State state) {
  return kStates[static_cast<std::size_t>(state)];
}

std::string record_text(const TrashRecord& record) {
  std::string out = fmt::format("{{\"format\":\"{}\"", kFormat);
  append_text(out, "state", state_name(record.state));
  append_text(out, "id", record.id);
  out += fmt::format(",\n \"step\":{},\n \"bytes\":{},\n \"series\":{}", record.step, record.bytes, record.series);
  if (!record.dropped.empty()) append_text(out, "dropped", record.dropped);
  if (record.recycled) out += ",\n \"recycled\":true";
  if (record.series_from) out += fmt::format(",\n \"series_from\":{}", *record.series_from);
  append_time(out, "created_ms", record.created);
  if (record.committed) append_time(out, "committed_ms", *record.committed);
  append_time(out, "deleted_ms", record.deleted);
  append_text(out, "by", record.by);
  append_text(out, "why", record.why);
  append_text(out, "policy", record.policy);
  append_time(out, "purge_at_ms", record.purge_at);
  append_time(out, "changed_ms", record.changed);
  append_text(out, "changed_by", record.changed_by);
  return out + "}\n";
}

Result<TrashRecord> parse_record(std::string_view text) {
  CKPT_TRY(const json::Value root, json::parse(text, {.max_bytes = kMostRecordBytes}));
  CKPT_TRY(const std::string format, text_of(root, "format"));
  if (format != kFormat) return fail(bad("format"));
  TrashRecord out;
  CKPT_TRY(const std::string state, text_of(root, "state"));
  std::size_t found = 0;
  while (found < kStates.size() && state != kStates[found]) ++found;
  if (found == kStates.size()) return fail(bad("state"));
  out.state = static_cast<TrashRecord::State>(found);
  CKPT_TRY(out.id, text_of(root, "id"));
  CKPT_TRY(out.step, natural_of(root, "step"));
  CKPT_TRY(out.bytes, natural_of(root, "bytes"));
  CKPT_TRY(out.series, natural_of(root, "series"));
  if (root.find("series_from") != nullptr) {
    CKPT_TRY(out.series_from, natural_of(root, "series_from"));
  }
  if (root.find("dropped") != nullptr) {
    CKPT_TRY(out.dropped, text_of(root, "dropped"));
    if (out.dropped != "optim") return fail(bad("dropped"));
  }
  if (const json::Value* recycled = root.find("recycled"); recycled != nullptr) {
    if (recycled->boolean() == nullptr) return fail(bad("recycled"));
    out.recycled = *recycled->boolean();
  }
  CKPT_TRY(out.created, time_of(root, "created_ms"));
  if (root.find("committed_ms") != nullptr) {
    CKPT_TRY(out.committed, time_of(root, "committed_ms"));
  }
  CKPT_TRY(out.deleted, time_of(root, "deleted_ms"));
  CKPT_TRY(out.by, text_of(root, "by"));
  CKPT_TRY(out.why, text_of(root, "why"));
  CKPT_TRY(out.policy, text_of(root, "policy"));
  CKPT_TRY(out.purge_at, time_of(root, "purge_at_ms"));
  CKPT_TRY(out.changed, time_of(root, "changed_ms"));
  CKPT_TRY(out.changed_by, text_of(root, "changed_by"));
  return out;
}

}  // namespace ckpt::catalog
