#include "api/catalog/store_catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "api/catalog/named_checkpoint.hpp"
#include "catalog/index/trash_index.hpp"
#include "convert/detection.hpp"
#include "convert/foreign_names.hpp"
#include "convert/metadata_memory.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/store/inbox.hpp"
#include "format/model/value.hpp"
#include "format/text/glob.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

using catalog::Entry;

constexpr std::string_view kMetricsBegin = "# HELP ckpt_";

bool has_wildcard(std::string_view glob) {
  return glob.find_first_of("*?[") != std::string_view::npos;
}

void sort_entries(std::vector<Entry>& entries, CatalogQuery::Sort sort) {
  using Sort = CatalogQuery::Sort;
  if (sort == Sort::newest) return;  // as they come
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    if (sort == Sort::size) return a.checkpoint.bytes > b.checkpoint.bytes;
    if (sort == Sort::time) return a.checkpoint.created > b.checkpoint.created;
    if (a.checkpoint.run != b.checkpoint.run) return a.checkpoint.run < b.checkpoint.run;
    return older(a.checkpoint, b.checkpoint);
  });
}

}  // namespace

catalog::OtherTools other_tools() {
  const auto detect = [](Io& io, const std::string& directory) -> catalog::Recognised {
    const Recognition seen = recognise(io, directory);
    return {.format = seen.format == nullptr ? "" : std::string(seen.format->name), .unfinished = seen.unfinished};
  };
  return {.names = foreign_names(), .recognise = detect};
}

Result<catalog::Catalog> open_catalog(Io& io, const std::string& store, catalog::Trust trust, catalog::Time now,
                                      std::uint64_t memory_bytes) {
  const std::uint64_t parsed = memory_bytes / memory_for(1, MetadataCost::json);
  return catalog::Catalog::open(
      io, store,
      {.tools = other_tools(), .trust = trust, .now = now, .manifest_bytes = std::min(parsed, kMostManifestBytes)});
}

Result<CatalogListing> list_catalog(Io& io, const CatalogQuery& query) {
  CKPT_TRY(catalog::Catalog catalog,
           open_catalog(io, query.store, query.rebuild ? catalog::Trust::nothing : catalog::Trust::notes, query.now,
                        query.memory_bytes));
  catalog::Query rows{.tag = query.tag};
  const bool in_order = query.sort == CatalogQuery::Sort::newest;
  if (query.limit && in_order) rows.limit = *query.limit;
  if (!query.run.empty() && !has_wildcard(query.run)) rows.run = query.run;
  if (query.state || query.where || query.since || (!query.run.empty() && !rows.run)) {
    rows.passes = [&](const Entry& entry) {
      if (query.state && entry.checkpoint.state != *query.state) return false;
      if (query.since && entry.checkpoint.created < *query.since) return false;
      if (!query.run.empty() && !matches_glob(entry.checkpoint.run, query.run)) return false;
      return !query.where || query.where->matches(entry.checkpoint, query.now);
    };
  }
  CatalogListing out{.indexed = catalog.is_indexed(), .warnings = catalog.warnings()};
  CKPT_TRY(out.entries, catalog::select_entries(catalog.database(), rows));
  CKPT_TRY(out.total, catalog::count_entries(catalog.database()));
  sort_entries(out.entries, query.sort);
  if (query.limit && out.entries.size() > *query.limit)
    out.entries.erase(out.entries.begin() + static_cast<std::ptrdiff_t>(*query.limit), out.entries.end());
  return out;
}

Result<StoreStatus> store_status(Io& io, const std::string& store, const std::string& run, catalog::Time now,
                                 std::uint64_t memory_bytes) {
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, store, catalog::Trust::notes, now, memory_bytes));
  StoreStatus out{.indexed = catalog.is_indexed(), .warnings = catalog.warnings()};
  CKPT_TRY(out.runs, catalog::summarise_runs(catalog.database()));
  CKPT_TRY(out.free_bytes, io.free_bytes(store));
  if (const auto recycled = catalog::measure_recycled(io, store)) out.recycled = *recycled;
  if (auto trash = catalog::measure_indexed_trash(io, store, catalog.database(), run, now))
    out.trash = *trash;
  else
    out.warnings.push_back(trash.error().message);
  if (auto readers = store_readers(io, store))
    out.readers = *std::move(readers);
  else
    out.warnings.push_back(readers.error().message);
  for (const catalog::RunSummary& summary : out.runs) {
    if (!summary.newest_demoted) continue;
    auto entry = catalog::find_demotion(io, store, summary.run, summary.newest_demoted->name);
    if (entry && entry->record.id == summary.newest_demoted->id) out.demotions.push_back(*std::move(entry));
  }
  if (run.empty()) return out;
  std::vector<std::string> names;
  for (const catalog::RunSummary& summary : out.runs) names.push_back(summary.run);
  std::erase_if(out.runs, [&](const catalog::RunSummary& summary) { return summary.run != run; });
  if (!out.runs.empty()) return out;
  const auto near = nearest(run, names);
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: no checkpoint of a run '{}'", store, run),
               .file = store,
               .hint = near ? fmt::format("did you mean '{}'?", *near) : "'ckpt list' shows the checkpoints"});
}

const catalog::TrashEntry* StoreStatus::demotion_of(const std::string& run) const {
  const auto found = std::ranges::find(demotions, run, &catalog::TrashEntry::run);
  return found == demotions.end() ? nullptr : &*found;
}

std::string prometheus_text(const StoreStatus& status) {
  std::string out;
  const auto label = [](std::string_view run) {
    std::string text;
    const bool readable = is_utf8(run);  // otherwise Prometheus would refuse the whole file
    for (const char c : run) {
      if (!readable && static_cast<unsigned char>(c) >= 0x80) {
        text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        continue;
      }
      if (c == '\\' || c == '"') text += '\\';
      text += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return text;
  };
  const auto metric = [&](std::string_view name, std::string_view help, auto&& value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
    for (const catalog::RunSummary& run : status.runs)
      out += fmt::format("{}{{run=\"{}\"}} {}\n", name, label(run.run), value(run));
  };
  const auto seconds = [](catalog::Time time) { return static_cast<double>(time.time_since_epoch().count()) / 1000; };
  using Run = catalog::RunSummary;
  metric("ckpt_checkpoints", "Checkpoints of a run.", [](const Run& run) { return run.count; });
  metric("ckpt_bytes", "Bytes of their files.", [](const Run& run) { return run.bytes; });
  metric("ckpt_newest_step", "Step of the newest checkpoint.", [](const Run& run) { return run.newest_step; });
  metric("ckpt_newest_created_seconds", "Time of the newest checkpoint, seconds since 1970.",
         [&](const Run& run) { return seconds(run.newest_created); });
  metric("ckpt_verified", "Verified checkpoints.", [](const Run& run) { return run.verified; });
  metric("ckpt_damaged", "Checkpoints known to be damaged.", [](const Run& run) { return run.damaged; });
  metric("ckpt_unreadable", "Checkpoints that cannot be read at present.",
         [](const Run& run) { return run.unreadable; });
  metric("ckpt_pinned", "Checkpoints with a pin.", [](const Run& run) { return run.pinned; });
  metric("ckpt_demoted", "Checkpoints whose optimizer was dropped.", [](const Run& run) { return run.demoted; });
  const auto sum = [&](std::string_view name, std::string_view help, auto value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0} {2}\n", name, help, value);
  };
  sum("ckpt_free_bytes", "Free bytes on the volume.", status.free_bytes);
  sum("ckpt_recycled_bytes", "Bytes of retired files that wait for the next save.", status.recycled.bytes);
  sum("ckpt_trash_checkpoints", "Deleted checkpoints in the trash.", status.trash.checkpoints);
  sum("ckpt_trash_optimizers", "Dropped optimizers in the trash.", status.trash.optimizers);
  sum("ckpt_trash_bytes", "Bytes in the trash.", status.trash.bytes);
  sum("ckpt_trash_over", "Of these, entries past the grace period.", status.trash.over);
  if (status.trash.first_over)
    sum("ckpt_trash_first_over_seconds", "End of the first grace period, seconds since 1970.",
        seconds(*status.trash.first_over));
  sum("ckpt_readers_here", "Claims of readers on this host.", status.readers.here);
  sum("ckpt_readers_elsewhere", "Claims of readers on other hosts that may be live.", status.readers.elsewhere);
  sum("ckpt_readers_silent", "Of those on other hosts, claims that have not changed lately.", status.readers.silent);
  return out;
}

namespace {

/// Metrics replace only metrics: not a device, a pipe, a manifest, or a link.
Result<> check_metrics_file(Io& io, const std::string& file) {
  const auto refused = [&](const char* why) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: {}", file, why),
                 .file = file,
                 .hint = "name a new file, or one written by --prom"});
  };
  CKPT_TRY(const auto entries, io.list(parent_path(file)));
  const auto there = std::ranges::find(entries, base_name(file), &DirEntry::name);
  if (there == entries.end()) return {};
  if (there->is_link) return refused("is a symbolic link");
  if (there->kind != FileInfo::Kind::file) return refused("is not a regular file");
  CKPT_TRY(const FileInfo info, io.stat(file));
  if (info.bytes == 0) return {};
  std::string first(std::min<std::size_t>(kMetricsBegin.size(), info.bytes), '\0');
  CKPT_TRY(const FileHandle handle, io.open(file, {}));
  const auto read = io.read_at(handle, 0, std::as_writable_bytes(std::span(first)));
  static_cast<void>(io.close(handle));
  if (!read) return fail(read.error());
  return first == kMetricsBegin ? Result<>() : refused("holds something other than metrics of ckpt");
}

}  // namespace

Result<> write_status(Io& io, const std::string& file, const StoreStatus& status) {
  CKPT_CHECK(check_metrics_file(io, file));
  return replace_file(io, file, prometheus_text(status));
}

Result<MarkReport> mark_checkpoint(Io& io, const MarkRequest& request) {
  MarkReport out;
  {
    CKPT_TRY(catalog::Catalog catalog, open_catalog(io, request.store, catalog::Trust::notes, request.now));
    out.warnings = catalog.warnings();
    CKPT_TRY(out.entry, find_in_catalog(io, catalog, request.checkpoint));
  }
  out.path = out.entry.path(request.store);
  const std::string marks = catalog::marks_path(out.path, out.entry.foreign);
  if (request.remove) {
    CKPT_TRY(out.changed, catalog::remove_mark(io, marks, request.mark.kind, request.mark.name, foreign_names()));
  } else {
    CKPT_CHECK(catalog::write_mark(io, marks, request.mark, catalog::Holding::lease, foreign_names()));
  }
  const std::string word = fmt::format("{} {} {} {}", static_cast<int>(request.mark.kind), request.remove,
                                       request.mark.name, request.now.time_since_epoch().count());
  drop_note(io, catalog::run_path(request.store, out.entry.checkpoint.run), out.entry.name, word);
  const catalog::EntryPlace place{.run = out.entry.checkpoint.run,
                                  .name = out.entry.name,
                                  .foreign = out.entry.foreign,
                                  .format = out.entry.format,
                                  .step = out.entry.checkpoint.step,
                                  .trackers = out.entry.checkpoint.trackers,
                                  .link = out.entry.checkpoint.link};
  if (auto now = catalog::read_entry(io, request.store, place)) out.entry = *std::move(now);
  return out;
}

}  // namespace ckpt
