#include "api/run/run_series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "catalog/superseded.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/real_path.hpp"
#include "engine/locks/claims.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

/// Later series have later generations, so the newest readable manifests and records suffice; of a run of many years no
/// more are read.
constexpr std::size_t kMostRead = 1000;

std::uint64_t generation_of(const catalog::TrashFolder::Item& item) {
  const auto name = CheckpointName::parse(item.kept_as);
  return name ? name->generation : 0;
}

/// Series in the records of the run's deletions, in one store.
Result<std::vector<catalog::SeriesBirth>> deleted_series(Io& io, const std::string& store, const std::string& run) {
  const auto info = io.stat(join_path(catalog::trash_path(store), run));
  // If a foreign file has its name there is none.
  const bool none = info ? info->kind != FileInfo::Kind::directory : info.error().code == Errc::not_found;
  if (none) return std::vector<catalog::SeriesBirth>();
  CKPT_TRY(catalog::TrashFolder folder, catalog::list_trash_folder(io, store, run));
  std::erase_if(folder.items, [](const auto& item) { return !item.has_record; });
  std::ranges::stable_sort(folder.items, std::ranges::greater(), generation_of);
  std::vector<catalog::SeriesBirth> out;
  for (const auto& item : folder.items) {
    if (out.size() == kMostRead) break;
    const auto entry = catalog::read_trash_entry(io, store, run, item);
    if (entry && entry->recorded) out.push_back(catalog::birth_of(*entry));
  }
  return out;
}

void add_series(RunSeries& out, const catalog::SeriesStart& start) {
  const auto& [series, from, after] = start;
  if (series > out.greatest) {
    out.greatest = series;
    out.from.reset();
    out.after.reset();
  }
  if (series == out.greatest && !out.after) out.after = after;
  // Where two disagree on its beginning, the later step supersedes less.
  if (series == out.greatest && from) out.from = std::max(out.from.value_or(0), *from);
}

}  // namespace

Result<RunSeries> series_of(Io& io, const std::string& run_directory, const std::string& local_directory) {
  RunSeries out;
  CKPT_TRY(out.standing, list_copies(io, run_directory, local_directory, kMostRead));
  std::vector<catalog::SeriesBirth> births;
  const std::string real = real_path(run_directory).value_or(run_directory);
  for (const std::string& store : stores_above(io, real)) {
    std::string_view below(real);
    below.remove_prefix(std::min(below.size(), store.size()));
    while (below.starts_with('/')) below.remove_prefix(1);
    CKPT_TRY(const auto deleted, deleted_series(io, store, store == "." ? real : std::string(below)));
    births.insert(births.end(), deleted.begin(), deleted.end());
  }
  std::vector<catalog::Checkpoint> checkpoints;
  for (const RunCheckpoint& one : out.standing) {
    const universal::Run run = one.run.value_or(universal::Run{});
    if (one.run) add_series(out, {run.series, run.series_from, run.series_after});
    checkpoints.push_back({.series = run.series,
                           .series_from = run.series_from,
                           .series_after = run.series_after,
                           .step = one.name.step});
  }
  for (catalog::SeriesBirth& birth : births) {
    add_series(out, {birth.series, birth.from, birth.after});
    birth.run.clear();  // that of `checkpoints`
  }
  const auto since = catalog::superseded_since(checkpoints, births);
  for (std::size_t i = 0; i < since.size(); ++i)
    out.superseded.push_back(since[i].has_value() && out.standing[i].run.has_value());
  return out;
}

universal::Run stay_in_series(const std::string& run_directory, const RunSeries& known) {
  return {.name = base_name(run_directory),
          .series = known.greatest,
          .series_from = known.from,
          .series_after = known.after};
}

universal::Run begin_series(const std::string& run_directory, const RunSeries& known, std::optional<std::uint64_t> from,
                            std::optional<std::uint64_t> after) {
  return {.name = base_name(run_directory), .series = known.greatest + 1, .series_from = from, .series_after = after};
}

std::string superseding_note(const universal::Run& series, std::uint64_t step) {
  return fmt::format("series {} begins: checkpoints of this run after step {} are superseded", series.series, step);
}

}  // namespace ckpt
