#include "cli/report/catalog_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "catalog/bucket.hpp"
#include "catalog/index/names.hpp"
#include "catalog/scan/lacks_files.hpp"
#include "catalog/scan/utc.hpp"

namespace ckpt::cli {
namespace {

/// null if there is no time.
void put_time(json::Writer& out, std::string_view key, const std::optional<catalog::Time>& time) {
  put_optional(out, key, time ? catalog::time_text(*time) : "");
}

/// JSON has no numbers for some of them.
void put_number(json::Writer& out, double value) {
  if (std::isnan(value)) {
    out.value("nan");
  } else if (std::isinf(value)) {
    out.value(value > 0 ? "inf" : "-inf");
  } else {
    out.value(value);
  }
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ",") + text;
  return out;
}

std::string metrics_text(const catalog::Checkpoint& checkpoint) {
  std::string out;
  for (const auto& [name, value] : checkpoint.metrics)
    out += fmt::format("{}{}={:.6g}", out.empty() ? "" : " ", name, value);
  return out;
}

/// Why it is not usable, what else is known of it, and its notes. `with_pins`: pins and the verification, too, where they
/// have no columns.
std::string note_text(const catalog::Entry& entry, bool with_pins) {
  std::string out;
  const auto add = [&](std::string text) { out += (out.empty() ? "" : "; ") + std::move(text); };
  for (const catalog::Pin& pin : entry.checkpoint.pins) {
    std::string text = "pinned";
    if (!pin.name.empty()) text += " " + pin.name;
    if (pin.until && with_pins) text += " until " + catalog::time_text(*pin.until).substr(0, 10);
    if (!pin.reason.empty()) text += ": " + pin.reason;
    if (with_pins || text != "pinned") add(std::move(text));
  }
  for (const std::string& tracker : entry.checkpoint.trackers) add("named by " + tracker);
  if (const auto verified = entry.last(catalog::Mark::Kind::verified);
      with_pins && verified && entry.checkpoint.state == catalog::State::verified)
    add("verified " + catalog::time_text(*verified).substr(0, 10));
  if (const auto restored = entry.last(catalog::Mark::Kind::restored))
    add("restored " + catalog::time_text(*restored).substr(0, 10));
  if (entry.is_demoted()) add("optimizer dropped");
  for (const catalog::Mark& mark : entry.marks) {
    const bool is_remark = mark.name == catalog::kScrubNote;  // VERIFIED says it where there is a column
    if (mark.kind == catalog::Mark::Kind::note && (with_pins || !is_remark)) add(mark.text);
  }
  if (!entry.reason.empty()) add(entry.reason);
  return out;
}

/// Nothing of one whose manifest cannot be read.
std::optional<catalog::Time> created_of(const catalog::Checkpoint& checkpoint) {
  return checkpoint.created == catalog::Time{} ? std::nullopt : std::optional(checkpoint.created);
}

/// "yes", or the day on which the last of its pins ends.
std::string pin_cell(const catalog::Checkpoint& checkpoint) {
  std::optional<catalog::Time> last;
  for (const catalog::Pin& pin : checkpoint.pins) {
    if (!pin.until) return "yes";
    last = std::max(last.value_or(*pin.until), *pin.until);
  }
  return last ? "to " + catalog::time_text(*last).substr(5, 5) : "";
}

}  // namespace

std::string policy_text(const std::string& policy) {
  if (policy == "ckpt rm") return "with ckpt rm";
  constexpr std::string_view kOf = " of ";
  const std::size_t at = policy.rfind(kOf);
  if (at == std::string::npos) return "policy of " + printable(policy);
  return fmt::format("policy '{}' of {}", printable(policy.substr(0, at)), printable(policy.substr(at + kOf.size())));
}

std::string trash_name(const std::string& run, const std::string& name, std::uint64_t step, bool again) {
  const std::string number = std::to_string(step);
  const auto own = CheckpointName::parse(name);
  if (!again && (own || name.ends_with(number))) return catalog::short_name(run, step);
  return own ? fmt::format("{}@{}.g{}", run, own->step, own->generation) : catalog::directory_name(run, name);
}

std::string trash_name(const catalog::TrashEntry& entry) {
  return trash_name(entry.run, entry.name, entry.record.step, entry.shares_step || !entry.recorded);
}

std::string minute_text(catalog::Time time) {
  constexpr std::size_t kDay = 10;
  constexpr std::size_t kMinute = 16;
  const std::string text = catalog::time_text(time);
  if (text.size() < kMinute) return text;
  return fmt::format("{} {} UTC", text.substr(0, kDay), text.substr(kDay + 1, kMinute - kDay - 1));
}

std::string age_text(catalog::Time time, catalog::Time now) {
  const auto age = catalog::elapsed(time, now);
  if (age < catalog::Duration(0)) return "in the future";
  const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(age).count();
  if (minutes < 2) return fmt::format("{} s", age.count() / 1000);
  if (minutes < 120) return fmt::format("{} min", minutes);
  if (minutes < 48 * 60) return fmt::format("{} h", minutes / 60);
  const auto days = minutes / (24 * 60);
  return days < 2 * 365 ? fmt::format("{} d", days) : fmt::format("{} y", days / 365);
}

Ink state_ink(std::string_view state) {
  if (state == "verified") return Ink::green;
  if (state == "damaged" || state == "incomplete") return Ink::red;
  return state == "complete" || state == "unverified" ? Ink::plain : Ink::yellow;
}

/// "1000"; of an earlier save of the step "1000.g7", or its directory ("checkpoint-1000", "/1000"), as in its name.
std::string step_cell(const catalog::Entry& entry, const catalog::ShortNames& names) {
  const std::string rest = names.of(entry).substr(entry.checkpoint.run.size());
  return rest.starts_with('@') ? rest.substr(1) : rest;
}

Table entry_table(const CatalogListing& listing, SizeStyle sizes, catalog::Time now) {
  const std::vector<catalog::Entry>& entries = listing.entries;
  Table out{.columns = {{.title = "RUN", .shrinks = true, .least = 10},
                        {.title = "STEP", .right = true},
                        {.title = "STATE"},
                        {.title = "AGE", .right = true},
                        {.title = "SIZE", .right = true},
                        {.title = "PIN"},
                        {.title = "VERIFIED", .right = true},
                        {.title = "METRIC", .shrinks = true, .least = 14, .keeps_head = true},
                        {.title = "TAGS", .shrinks = true, .drops = true, .least = 6, .keeps_head = true},
                        {.title = "FORMAT", .drops = true},
                        {.title = "ID", .drops = true},
                        {.title = "NOTE", .shrinks = true, .drops = true, .least = 8, .keeps_head = true}}};
  // One format goes without saying, if it is ours.
  const bool others = std::ranges::any_of(entries, &catalog::Entry::foreign);
  out.rows.reserve(entries.size());
  for (const catalog::Entry& entry : entries) {
    const catalog::Checkpoint& checkpoint = entry.checkpoint;
    const auto created = created_of(checkpoint);
    const auto verified =
        checkpoint.state < catalog::State::committed ? std::nullopt : entry.last(catalog::Mark::Kind::verified);
    out.rows.push_back({printable(checkpoint.run), step_cell(entry, listing.names), std::string(listed_state(entry)),
                        created ? age_text(*created, now) : "", format_size(checkpoint.bytes, sizes),
                        pin_cell(checkpoint), verified ? age_text(*verified, now) : "",
                        printable(metrics_text(checkpoint)), printable(joined(checkpoint.tags)),
                        others ? entry.format : "", checkpoint.id.substr(0, 8), printable(note_text(entry, false))});
  }
  return out;
}

Table entry_values(const CatalogListing& listing, const std::string& store) {
  Table out{.columns = {{.title = "RUN"},
                        {.title = "STEP"},
                        {.title = "STATE"},
                        {.title = "CREATED"},
                        {.title = "BYTES"},
                        {.title = "FORMAT"},
                        {.title = "METRICS"},
                        {.title = "TAGS"},
                        {.title = "NOTE"},
                        {.title = "ID"},
                        {.title = "NAME"},
                        {.title = "PATH"}}};
  out.rows.reserve(listing.entries.size());
  for (const catalog::Entry& entry : listing.entries) {
    const catalog::Checkpoint& checkpoint = entry.checkpoint;
    const auto created = created_of(checkpoint);
    out.rows.push_back({printable(checkpoint.run), std::to_string(checkpoint.step), std::string(listed_state(entry)),
                        created ? catalog::time_text(*created) : "", std::to_string(checkpoint.bytes), entry.format,
                        printable(metrics_text(checkpoint)), printable(joined(checkpoint.tags)),
                        printable(note_text(entry, true)), checkpoint.id, printable(listing.names.of(entry)),
                        printable(entry.path(store))});
  }
  return out;
}

std::string draw_csv(const Table& table) {
  std::string out;
  const auto cell = [&](const std::string& text, bool first) {
    if (!first) out += ',';
    // A spreadsheet calculates a cell that begins so, quoted or not; behind an apostrophe it is text.
    const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos;
    if (!formula && text.find_first_of(",\"\r\n") == std::string::npos) {
      out += text;
      return;
    }
    out += formula ? "\"'" : "\"";
    for (const char c : text) {
      if (c == '"') out += '"';
      out += c;
    }
    out += '"';
  };
  for (std::size_t i = 0; i < table.columns.size(); ++i) cell(table.columns[i].title, i == 0);
  out += '\n';
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) cell(row[i], i == 0);
    out += '\n';
  }
  return out;
}

void put_names(json::Writer& out, const std::string& run, const std::string& name, const std::string& directory) {
  put_text(out, "run", run);
  put_text(out, "name", name);
  put_text(out, "directory", directory);
}

void put(json::Writer& out, const catalog::Entry& entry, const std::string& name, const std::string& store) {
  const catalog::Checkpoint& checkpoint = entry.checkpoint;
  out.begin_object();
  put_names(out, checkpoint.run, name, entry.name);
  out.member("step", checkpoint.step);
  put_text(out, "path", entry.path(store));
  out.member("id", checkpoint.id).member("state", listed_state(entry));
  put_text(out, "reason", entry.reason);
  out.member("generation", checkpoint.generation).member("series", checkpoint.series);
  out.member("series_from", checkpoint.series_from).member("parent", entry.parent);
  put_time(out, "created", created_of(checkpoint));
  out.member("format", entry.format);
  out.member("layout", entry.layout);
  put_text(out, "framework", entry.framework);
  out.member("bytes", checkpoint.bytes).member("optimizer_bytes", checkpoint.optimizer_bytes);
  out.member("optimizer_dropped", entry.is_demoted()).member("files", entry.file_count);
  out.member("referenced_files", entry.referenced_files).member("referenced_bytes", entry.referenced_bytes);
  out.key("metrics").begin_array();
  for (const auto& [metric, value] : checkpoint.metrics) {
    out.begin_object();
    put_text(out, "name", metric);
    put_number(out.key("value"), value);
    out.end_object();
  }
  out.end_array().member("tags", checkpoint.tags).key("pins").begin_array();
  for (const catalog::Pin& pin : checkpoint.pins) {
    out.begin_object().member("label", pin.name).member("owner", pin.owner).member("reason", pin.reason);
    put_time(out, "until", pin.until);
    out.end_object();
  }
  out.end_array().key("notes").begin_array();
  for (const catalog::Mark& mark : entry.marks) {
    if (mark.kind == catalog::Mark::Kind::note) out.value(mark.text);
  }
  out.end_array();
  put_time(out, "verified", entry.last(catalog::Mark::Kind::verified));
  put_time(out, "restored", entry.last(catalog::Mark::Kind::restored));
  out.member("references", checkpoint.references).member("trackers", checkpoint.trackers);
  out.member("marks_unreadable", checkpoint.marks_unreadable);
  out.member("write_s", entry.save ? std::optional(entry.save->write_s) : std::nullopt).end_object();
}

}  // namespace ckpt::cli
