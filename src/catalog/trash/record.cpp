#include "catalog/trash/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/model/value.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::string_view kFormat = "ckpt.trash/1";
constexpr std::array<const char*, 5> kStates{"trashed", "purging", "purged", "restored", "restoring"};

/// The text itself where JSON can hold it.
std::string ascii_or_utf8(std::string text) {
  if (is_utf8(text)) return text;
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
  return text;
}

/// Milliseconds since 1970; 0 for a clock set before that.
std::int64_t ms_of(Time time) {
  return std::max<std::int64_t>(0, time.time_since_epoch().count());
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

Time undeleted_until(const TrashRecord& record) {
  return record.changed + std::max(elapsed(record.deleted, record.purge_at), Duration{});
}

const char* state_name(TrashRecord::State state) {
  return kStates[static_cast<std::size_t>(state)];
}

std::string record_text(const TrashRecord& record) {
  std::string text;
  json::Writer out(text);
  out.begin_object().member("format", kFormat);
  const auto put = [&](std::string_view key, const auto& value) { out.line("\n ").member(key, value); };
  const auto put_text = [&](std::string_view key, const std::string& value) { put(key, ascii_or_utf8(value)); };
  put("state", state_name(record.state));
  put_text("id", record.id);
  put("step", record.step);
  put("bytes", record.bytes);
  put("series", record.series);
  if (!record.dropped.empty()) put_text("dropped", record.dropped);
  if (record.recycled) put("recycled", true);
  if (record.series_from) put("series_from", *record.series_from);
  if (record.series_after) put("series_after", *record.series_after);
  put("created_ms", ms_of(record.created));
  if (record.committed) put("committed_ms", ms_of(*record.committed));
  put("deleted_ms", ms_of(record.deleted));
  put_text("by", record.by);
  put_text("why", record.why);
  put_text("policy", record.policy);
  put("purge_at_ms", ms_of(record.purge_at));
  put("changed_ms", ms_of(record.changed));
  put_text("changed_by", record.changed_by);
  out.end_object();
  return text + '\n';
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
  if (root.find("series_after") != nullptr) {
    CKPT_TRY(out.series_after, natural_of(root, "series_after"));
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
