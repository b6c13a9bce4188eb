#include "api/run/run_series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "catalog/superseded.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

/// Manifests that are read, the newest: see births_in_trash.
constexpr std::size_t kMostRead = 1000;

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
  CKPT_TRY(const std::vector<catalog::SeriesBirth> births, catalog::births_above(io, run_directory));
  std::vector<catalog::Checkpoint> checkpoints;
  for (const RunCheckpoint& one : out.standing) {
    const universal::Run run = one.run.value_or(universal::Run{});
    if (one.run) add_series(out, {run.series, run.series_from, run.series_after});
    checkpoints.push_back({.series = run.series,
                           .series_from = run.series_from,
                           .series_after = run.series_after,
                           .step = one.name.step});
  }
  for (const catalog::SeriesBirth& birth : births) add_series(out, {birth.series, birth.from, birth.after});
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
