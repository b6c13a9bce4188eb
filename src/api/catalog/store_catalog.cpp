#include "api/catalog/store_catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_names.hpp"
#include "api/prune_policies.hpp"
#include "catalog/index/run_lineage.hpp"
#include "catalog/index/trash_index.hpp"
#include "catalog/metric_order.hpp"
#include "catalog/scan/lacks_files.hpp"
#include "convert/detection.hpp"
#include "convert/foreign_names.hpp"
#include "convert/metadata_memory.hpp"
#include "engine/io/real_path.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/store/inbox.hpp"
#include "format/model/value.hpp"
#include "format/text/glob.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

using catalog::Entry;

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

bool is_in_state(const Entry& entry, std::string_view state) {
  const std::string_view word = catalog::listed_state(entry);
  return word == state || (state == "complete" && word == "verified") ||
         (state == "damaged" && (word == "incomplete" || word == "repairable"));
}

/// "" means all.
std::span<const std::string> asked_runs(const std::string& run) {
  return {&run, run.empty() ? 0U : 1U};
}

/// A run that is not there is mistyped, or holds runs.
Error no_such_run(Io& io, const std::string& store, const std::string& run, const std::vector<std::string>& runs) {
  const auto below = hint_of_runs_below(io, store, run, runs);
  const auto near = nearest(run, runs);
  return {.code = Errc::not_found,
          .message = fmt::format("{}: no checkpoint of a run '{}'", store, run),
          .file = store,
          .hint = below  ? *below
                  : near ? fmt::format("did you mean '{}'?", *near)
                         : "'ckpt status' shows the runs"};
}

Result<> check_run(Io& io, catalog::Catalog& catalog, const std::string& store, const std::string& run) {
  CKPT_TRY(const auto names, catalog::runs_with_entries(catalog.database()));
  if (std::ranges::find(names, run) != names.end()) return {};
  CKPT_CHECK(check_seen(catalog.refreshed().unread, std::span(&run, 1)));
  return fail(no_such_run(io, store, run, names));
}

/// A metric that no checkpoint has is mistyped.
Result<> check_metrics(catalog::Catalog& catalog, const catalog::Filter& filter) {
  const std::vector<std::string> asked = filter.metrics();
  if (asked.empty()) return {};
  CKPT_TRY(const auto runs, catalog::summarise_runs(catalog.database()));
  std::set<std::string> known;
  for (const catalog::RunSummary& run : runs)
    for (const catalog::RunSummary::Metric& metric : run.metrics) known.insert(metric.name);
  for (const std::string& metric : asked) {
    if (known.contains(metric)) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    const auto near = nearest(metric, names);
    return fail({.code = Errc::usage,
                 .message = fmt::format("no checkpoint has the metric '{}'", metric),
                 .hint = near            ? fmt::format("did you mean 'metric.{}'?", *near)
                         : names.empty() ? "record metrics with 'ckpt save --metric' or 'ckpt mark NAME --metric'"
                                         : fmt::format("metrics: {}", fmt::join(names, ", "))});
  }
  return {};
}

}  // namespace

catalog::OtherTools other_tools() {
  const auto detect = [](Io& io, const std::string& directory) -> catalog::Recognised {
    const Recognition seen = recognise(io, directory);
    return {.format = seen.format == nullptr ? "" : std::string(seen.format->name),
            .unfinished = seen.unfinished,
            .unread = seen.unread};
  };
  return {.names = foreign_names(), .recognise = detect};
}

Result<catalog::Catalog> open_catalog(Io& io, const std::string& store, catalog::Trust trust, catalog::Time now,
                                      std::uint64_t memory_bytes) {
  const std::uint64_t parsed = memory_bytes / memory_for(1, MetadataCost::json);
  auto opened = catalog::Catalog::open(io, store,
                                       {.tools = other_tools(),
                                        .trust = trust,
                                        .now = now,
                                        .makes_store = trust == catalog::Trust::nothing,
                                        .manifest_bytes = std::min(parsed, kMostManifestBytes)});
  if (opened && !store.starts_with('/') && !real_path(store)) {
    return fail({.code = Errc::not_found,
                 .message = store + ": no such directory (the current directory was deleted)",
                 .file = store});
  }
  if (opened || opened.error().code != Errc::not_found || io.stat(store)) return opened;
  return fail({.code = Errc::not_found, .message = store + ": no such directory", .file = store});
}

std::vector<catalog::Unread> unread_among(std::span<const catalog::Unread> unread, std::span<const std::string> runs) {
  std::vector<catalog::Unread> out;
  for (const catalog::Unread& one : unread) {
    const std::string within = one.run + "/";
    const auto concerns = [&](const std::string& glob) {
      const std::string plain = glob.substr(0, glob.find_first_of("*?["));
      return glob == one.run || plain.starts_with(within) || (has_wildcard(glob) && within.starts_with(plain));
    };
    if (runs.empty() || one.run == "." || std::ranges::any_of(runs, concerns)) out.push_back(one);
  }
  return out;
}

Result<> check_seen(std::span<const catalog::Unread> unread, std::span<const std::string> runs) {
  auto among = unread_among(unread, runs);
  if (among.empty()) return {};
  return fail(std::move(among.front().error));
}

Result<> check_seen(std::span<const catalog::Unread> unread, std::span<const std::string> runs,
                    std::span<const std::string> known) {
  for (const std::string& run : runs) {
    if (has_wildcard(run) || std::ranges::find(known, run) != known.end()) continue;
    CKPT_CHECK(check_seen(unread, std::span(&run, 1)));
  }
  return {};
}

Result<CatalogListing> list_catalog(Io& io, const CatalogQuery& query) {
  CKPT_TRY(catalog::Catalog catalog,
           open_catalog(io, query.store, query.rebuild ? catalog::Trust::nothing : catalog::Trust::notes, query.now,
                        query.memory_bytes));
  if (query.where) CKPT_CHECK(check_metrics(catalog, *query.where));
  CatalogListing out{.indexed = catalog.is_indexed(), .warnings = catalog.warnings()};
  catalog::Query rows;
  const bool in_order = query.sort == CatalogQuery::Sort::newest;
  if (query.limit && in_order) rows.limit = *query.limit;
  if (!query.run.empty() && !has_wildcard(query.run)) rows.run = query.run;
  catalog::Lineages lineages(io, catalog, rows.run.value_or(""));
  const bool is_by_state = !query.state.empty() || query.where;
  bool is_sure = true;  // of each, whether it passes
  const bool is_filtered = !query.state.empty() || !query.tag.empty() || query.where || query.since;
  if (is_filtered || (!query.run.empty() && !rows.run)) {
    rows.passes = [&](Entry& entry) {
      out.names.add(entry);
      if (is_by_state) lineages.note(entry);
      if ((!query.tag.empty() || query.where) && entry.checkpoint.marks_unreadable) {
        out.warnings.push_back(fmt::format("{}: its marks cannot be read: {}", entry.path(query.store), entry.reason));
        is_sure = false;
      }
      if (!query.tag.empty() && std::ranges::find(entry.checkpoint.tags, query.tag) == entry.checkpoint.tags.end())
        return false;
      if (!query.state.empty() && !is_in_state(entry, query.state)) return false;
      if (query.since && entry.checkpoint.created < *query.since) return false;
      if (!query.run.empty() && !matches_glob(entry.checkpoint.run, query.run)) return false;
      return !query.where || query.where->matches(entry.checkpoint, query.now);
    };
  }
  CKPT_TRY(out.entries, catalog::select_entries(catalog.database(), rows));
  CKPT_TRY(out.total, catalog::count_entries(catalog.database()));
  if (!is_by_state) std::ranges::for_each(out.entries, [&](Entry& entry) { lineages.note(entry); });
  std::ranges::copy(lineages.warnings(), std::back_inserter(out.warnings));
  if (out.entries.empty() && rows.run) CKPT_CHECK(check_run(io, catalog, query.store, *rows.run));
  out.saw_all =
      is_sure && lineages.warnings().empty() && unread_among(catalog.refreshed().unread, asked_runs(query.run)).empty();
  if (!rows.passes) out.names = catalog::ShortNames(out.entries);
  sort_entries(out.entries, query.sort);
  if (query.limit && out.entries.size() > *query.limit)
    out.entries.erase(out.entries.begin() + static_cast<std::ptrdiff_t>(*query.limit), out.entries.end());
  return out;
}

namespace {

/// Its name in outputs.
Result<std::string> label_of(catalog::Catalog& catalog, const Entry& entry) {
  const catalog::Checkpoint& one = entry.checkpoint;
  CKPT_TRY(const auto saves, select_entries(catalog.database(), {.run = one.run, .step = one.step}));
  return catalog::ShortNames(saves).of(entry);
}

/// The verified ones of a run that went back: what is superseded is not called so.
Result<> count_verified(Io& io, catalog::Catalog& catalog, catalog::RunSummary& run) {
  catalog::Lineages lineages(io, catalog, run.run);
  run.verified = 0;
  run.verified_step.reset();
  const auto count = [&](Entry& entry) {
    lineages.note(entry);
    if (catalog::listed_state(entry) == "verified" && run.verified++ == 0) run.verified_step = entry.checkpoint.step;
    return false;
  };
  CKPT_CHECK(select_entries(catalog.database(), {.run = run.run, .passes = count}));
  return {};
}

/// The summary's newest becomes RUN@latest: it does not know what is superseded. Returns its name; "" if there is none.
Result<std::string> take_latest(Io& io, catalog::Catalog& catalog, catalog::RunSummary& run) {
  if (run.went_back) CKPT_CHECK(count_verified(io, catalog, run));
  if (!run.newest) return std::string();
  if (!run.went_back && !run.resaved) return catalog::short_name(run.run, run.newest->step);
  const auto latest = find_in_catalog(io, catalog, run.run + "@latest");
  if (!latest && latest.error().code != Errc::not_found) return fail(latest.error());
  run.newest.reset();
  if (!latest) return std::string();
  run.newest = {.name = latest->name, .step = latest->checkpoint.step, .created = latest->checkpoint.created};
  return label_of(catalog, *latest);
}

Result<std::optional<StoreStatus::Best>> best_of_run(Io& io, catalog::Catalog& catalog,
                                                     const std::vector<catalog::Policy>& policies,
                                                     const catalog::RunSummary& run) {
  auto rule = best_metric_of(policies, run.run);
  if (!rule && run.metrics.size() == 1) {
    const std::string& only = run.metrics.front().name;
    rule = catalog::BestMetric{.metric = only, .higher = catalog::is_higher_better(only)};
  }
  const auto found =
      !rule ? run.metrics.end() : std::ranges::find(run.metrics, rule->metric, &catalog::RunSummary::Metric::name);
  if (found == run.metrics.end()) return std::nullopt;
  StoreStatus::Best out{.run = run.run,
                        .metric = rule->metric,
                        .value = rule->higher ? found->highest : found->lowest,
                        .step = rule->higher ? found->highest_step : found->lowest_step};
  CKPT_TRY(const std::uint64_t equal, count_with_metric(catalog.database(), run.run, rule->metric, out.value));
  out.name = catalog::short_name(run.run, out.step);
  // The summary knows neither what is superseded, nor which of equal ones or of a step's saves it is.
  if (!run.went_back && !run.resaved && equal == 1) return out;
  const auto best =
      find_in_catalog(io, catalog, fmt::format("{}@best:{}:{}", run.run, rule->metric, rule->higher ? "max" : "min"));
  if (!best)
    return best.error().code == Errc::not_found ? Result<std::optional<StoreStatus::Best>>(std::nullopt)
                                                : fail(best.error());
  out.value = *catalog::find_metric(best->checkpoint, rule->metric);
  out.step = best->checkpoint.step;
  CKPT_TRY(out.name, label_of(catalog, *best));
  return out;
}

}  // namespace

Result<StoreStatus> store_status(Io& io, const std::string& store, const std::string& run, catalog::Time now,
                                 std::uint64_t memory_bytes) {
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, store, catalog::Trust::notes, now, memory_bytes));
  StoreStatus out{.indexed = catalog.is_indexed(), .warnings = catalog.warnings()};
  CKPT_TRY(out.runs, catalog::summarise_runs(catalog.database()));
  for (catalog::RunSummary& summary : out.runs) {
    auto name = take_latest(io, catalog, summary);
    if (name) {
      out.newest[summary.run] = *std::move(name);
      continue;
    }
    out.newest[summary.run] = summary.newest ? catalog::short_name(summary.run, summary.newest->step) : std::string();
    out.saw_all = false;
    out.warnings.push_back(std::move(name).error().message);
  }
  CKPT_TRY(out.free_bytes, io.free_bytes(store));
  if (const auto recycled = catalog::measure_recycled(io, store)) out.recycled = *recycled;
  if (auto trash = catalog::measure_indexed_trash(io, store, catalog.database(), run, now))
    out.trash = *trash;
  else
    out.trash_unread = trash.error().message;
  if (auto readers = store_readers(io, store))
    out.readers = *std::move(readers);
  else
    out.warnings.push_back(readers.error().message);
  for (const catalog::RunSummary& summary : out.runs) {
    if (!summary.newest_demoted) continue;
    auto entry = catalog::find_demotion(io, store, summary.run, summary.newest_demoted->name);
    if (entry && entry->record.id == summary.newest_demoted->id) out.demotions.push_back(*std::move(entry));
  }
  out.last_prune = read_last_run(io, store, LastRun::Kind::prune);
  out.last_verify = read_last_run(io, store, LastRun::Kind::verify);
  out.has_policy = io.stat(join_path(store, kPolicyFile)).has_value();
  const auto policies = policies_in(io, store);
  for (const catalog::RunSummary& summary : out.runs) {
    if (summary.metrics.empty()) continue;
    auto best = best_of_run(io, catalog, policies, summary);
    if (!best) {
      out.warnings.push_back(std::move(best).error().message);
      out.saw_all = false;
    } else if (*best) {
      out.bests.push_back(**std::move(best));
    }
  }
  const auto runs_asked = asked_runs(run);
  out.saw_all = out.saw_all && out.trash_unread.empty() && unread_among(catalog.refreshed().unread, runs_asked).empty();
  if (run.empty()) return out;
  std::vector<std::string> names;
  for (const catalog::RunSummary& summary : out.runs) names.push_back(summary.run);
  std::erase_if(out.runs, [&](const catalog::RunSummary& summary) { return summary.run != run; });
  if (!out.runs.empty()) return out;
  CKPT_CHECK(check_seen(catalog.refreshed().unread, runs_asked));
  return fail(no_such_run(io, store, run, names));
}

const StoreStatus::Best* StoreStatus::best_of(const std::string& run) const {
  const auto found = std::ranges::find(bests, run, &Best::run);
  return found == bests.end() ? nullptr : &*found;
}

const catalog::TrashEntry* StoreStatus::demotion_of(const std::string& run) const {
  const auto found = std::ranges::find(demotions, run, &catalog::TrashEntry::run);
  return found == demotions.end() ? nullptr : &*found;
}

namespace {

Result<> apply_change(Io& io, const std::string& marks, const MarkChange& change, MarkReport& out) {
  if (!change.remove) return catalog::write_mark(io, marks, change.mark, catalog::Holding::lease, foreign_names());
  CKPT_TRY(out.changed, catalog::remove_mark(io, marks, change.mark.kind, change.mark.name, foreign_names()));
  return {};
}

/// Whether a mark to remove is there.
Result<> check_removal(const Entry& entry, const std::string& label, const catalog::Mark& mark) {
  std::vector<std::string> names;
  for (const catalog::Mark& other : entry.marks) {
    if (other.kind == mark.kind) names.push_back(other.name);
  }
  if (std::ranges::find(names, mark.name) != names.end()) return {};
  const std::string what = mark.name.empty() ? fmt::format("no {}", catalog::kind_name(mark.kind))
                                             : fmt::format("no {} '{}'", catalog::kind_name(mark.kind), mark.name);
  if (mark.kind == catalog::Mark::Kind::metric && find_metric(entry.checkpoint, mark.name) != nullptr)
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: the metric '{}' was saved with the checkpoint", label, mark.name),
                 .hint = fmt::format("--metric {}=X overrides it", mark.name)});
  const auto near = nearest(mark.name, names);
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: {}", label, what),
               .hint = near ? fmt::format("did you mean '{}'?", *near) : std::string()});
}

/// Applies the changes to a checkpoint that was found, and reads it again. `checks`: every mark to remove must be there.
Result<MarkReport> apply_changes(Io& io, const MarksRequest& request, MarkReport out, bool checks) {
  out.path = out.entry.path(request.store);
  for (const MarkChange& change : request.changes) {
    if (checks && change.remove) CKPT_CHECK(check_removal(out.entry, out.label, change.mark));
  }
  if (out.entry.checkpoint.single_file)
    return fail({.code = Errc::unsupported,
                 .message = out.path + ": a single-file checkpoint cannot have marks",
                 .file = out.path,
                 .hint = "'ckpt save' imports it into the store"});
  const std::string marks = catalog::marks_path(out.path, out.entry.foreign);
  for (const MarkChange& change : request.changes) {
    auto applied = apply_change(io, marks, change, out);
    const std::string word = fmt::format("{} {} {} {}", static_cast<int>(change.mark.kind), change.remove,
                                         change.mark.name, request.now.time_since_epoch().count());
    if (applied) drop_note(io, catalog::run_path(request.store, out.entry.checkpoint.run), out.entry.name, word);
    CKPT_CHECK(std::move(applied));
  }
  const catalog::EntryPlace place{.run = out.entry.checkpoint.run,
                                  .name = out.entry.name,
                                  .foreign = out.entry.foreign,
                                  .format = out.entry.format,
                                  .step = out.entry.checkpoint.step,
                                  .trackers = out.entry.checkpoint.trackers,
                                  .link = out.entry.checkpoint.link,
                                  .metrics = foreign_names().metrics};
  if (auto now = catalog::read_entry(io, request.store, place)) out.entry = *std::move(now);
  return out;
}

/// Finds it, and applies the changes.
Result<MarkReport> change_checkpoint(Io& io, const MarksRequest& request, bool checks) {
  MarkReport found;
  {
    CKPT_TRY(catalog::Catalog catalog, open_catalog(io, request.store, catalog::Trust::notes, request.now));
    found.warnings = catalog.warnings();
    CKPT_TRY(found.entry, find_in_catalog(io, catalog, request.checkpoint));
    CKPT_TRY(found.label, label_of(catalog, found.entry));
  }
  return apply_changes(io, request, std::move(found), checks);
}

}  // namespace

Result<MarkReport> mark_checkpoint(Io& io, const MarkRequest& request) {
  return change_checkpoint(io,
                           {.store = request.store,
                            .checkpoint = request.checkpoint,
                            .changes = {{.mark = request.mark, .remove = request.remove}},
                            .now = request.now},
                           false);
}

Result<MarkReport> change_marks(Io& io, const MarksRequest& request) {
  return change_checkpoint(io, request, true);
}

Result<MarkReport> change_marks_of(Io& io, const MarksRequest& request, const catalog::Entry& entry) {
  return apply_changes(io, request, {.entry = entry, .label = request.checkpoint}, true);
}

}  // namespace ckpt
