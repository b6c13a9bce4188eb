#include "api/catalog/newest_checkpoint.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "api/catalog/lacking_files.hpp"
#include "api/catalog/store_catalog.hpp"
#include "catalog/index/names.hpp"
#include "convert/detection.hpp"
#include "convert/foreign_names.hpp"
#include "engine/store/holds_store.hpp"
#include "engine/store/inbox.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

/// A run's place: a store above a path, and the rest of the path.
struct RunPlace {
  std::string store;
  std::string run;
};

/// Looks for a store as many levels up as runs may be deep.
std::optional<RunPlace> run_place(Io& io, const std::string& path) {
  std::string above = path;
  std::string run;
  for (std::size_t level = 0; level < catalog::kDeepestRun; ++level) {
    if (base_name(above) == "." || base_name(above) == "..") break;
    run = run.empty() ? base_name(above) : join_path(base_name(above), run);
    const std::string parent = parent_path(above);
    if (parent == above) break;
    above = parent;
    if (holds_store(io, above).value_or(false)) return RunPlace{.store = above, .run = run};
  }
  return std::nullopt;
}

std::string newest_of(std::size_t count) {
  return count == 1 ? "its only checkpoint" : fmt::format("the newest of its {} checkpoints", count);
}

Result<FoundSource> newest_of_run(Io& io, const std::string& path, const RunPlace& place, catalog::Time now,
                                  std::string_view what) {
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, place.store, catalog::Trust::notes, now));
  CKPT_TRY(const auto entries, select_entries(catalog.database(), {.run = place.run}));
  const std::string list = fmt::format("'ckpt list --store {} --run {}' lists its checkpoints", place.store, place.run);
  if (entries.empty()) return FoundSource{.path = path};
  auto newest = find_in_catalog(io, catalog, place.run + "@latest");
  if (!newest) return fail(with_hint(std::move(newest).error(), list));
  return FoundSource{.path = newest->path(place.store),
                     .note = fmt::format("{} is {}: using {}, {}; {}", path, what,
                                         catalog::ShortNames(entries).of(*newest), newest_of(entries.size()), list)};
}

Result<FoundSource> newest_of_store(Io& io, const std::string& path, catalog::Time now) {
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, path, catalog::Trust::notes, now));
  CKPT_TRY(const auto entries, select_entries(catalog.database(), {}));
  std::set<std::string> runs;
  for (const catalog::Entry& entry : entries) runs.insert(entry.checkpoint.run);
  if (runs.empty())
    return fail({.code = Errc::not_found,
                 .message = path + ": a store without checkpoints",
                 .file = path,
                 .hint = fmt::format("'ckpt save SRC --run RUN --store {}' imports one", path)});
  if (runs.size() == 1)
    return newest_of_run(io, path, {.store = path, .run = *runs.begin()}, now,
                         fmt::format("a store of the run {}", *runs.begin()));
  return fail({.code = Errc::ambiguous,
               .message = fmt::format("{}: a store of {} runs: {}", path, runs.size(), name_list(runs)),
               .file = path,
               .hint = fmt::format("'ckpt list --store {}' lists the checkpoints; name one, e.g. {}@latest --store {}",
                                   path, *runs.begin(), path)});
}

/// Names show the newest if all have one form with a step, or a generation, and no other has the same.
bool is_unambiguous(const std::vector<OneCheckpoint>& newest_first) {
  const std::string form = form_of(newest_first.front().name);
  for (const OneCheckpoint& one : newest_first)
    if (!one.step || form_of(one.name) != form) return false;
  return newest_first.size() == 1 || newest_first[0].generation != newest_first[1].generation ||
         newest_first[0].step != newest_first[1].step;
}

/// Directories named as checkpoints of a greater step that are none: empty, or unfinished.
std::vector<std::string> newer_unfinished(const std::vector<DirEntry>& entries, const OneCheckpoint& newest) {
  std::vector<std::string> out;
  const ForeignNames names = foreign_names();
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::directory || entry.name.starts_with('.')) continue;
    const auto own = CheckpointName::parse(entry.name);
    const auto step = own ? std::optional(own->step) : names.step_in(entry.name);
    if (step && *step > newest.step.value_or(0)) out.push_back(entry.name);
  }
  return out;
}

/// The newest of the checkpoints in a directory, and what could make another one the right one.
Result<FoundSource> newest_of_directory(Io& io, const std::string& root, const std::vector<OneCheckpoint>& below) {
  const OneCheckpoint& newest = below.front();
  FoundSource out{.path = join_path(root, newest.name),
                  .note = fmt::format("{} is a directory of checkpoints: using {}, {}", root, newest.name,
                                      newest_of(below.size()))};
  CKPT_TRY(const auto entries, io.list(root));
  if (const auto passed_over = newer_unfinished(entries, newest); !passed_over.empty())
    out.note += fmt::format("; unfinished, or superseded by a rollback: {}", name_list(passed_over));
  if (const std::string lacks = lacks_text(io, out.path); !lacks.empty()) out.note += "; " + lacks;
  return out;
}

}  // namespace

Result<FoundSource> newest_at(Io& io, const std::string& path, catalog::Time now) {
  const auto info = io.stat(path);
  if (!info || info->kind != FileInfo::Kind::directory) return FoundSource{.path = path};
  if (const Recognition seen = recognise(io, path); seen.format != nullptr || seen.unfinished)
    return FoundSource{.path = path};
  const std::string root = path.size() > 1 ? path.substr(0, path.find_last_not_of('/') + 1) : path;
  if (CheckpointName::parse(base_name(root))) return FoundSource{.path = path};  // what it holds is no newer save of it
  if (io.stat(join_path(root, kStoreDirectory))) return newest_of_store(io, root, now);
  CKPT_TRY(const std::vector<OneCheckpoint> below, find_checkpoints_below(io, root));
  if (below.empty()) return FoundSource{.path = path};
  if (const auto place = run_place(io, root)) {
    CKPT_TRY(FoundSource found, newest_of_run(io, root, *place, now, "a run"));
    if (found.path != root) return found;
  }
  if (!is_unambiguous(below)) return FoundSource{.path = path};
  return newest_of_directory(io, root, below);
}

}  // namespace ckpt
