#include "api/run/save_series.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt {

void SaveSeries::note_loaded(Loaded loaded, RunSeries at_load) {
  loaded_since_ = series_.has_value();
  loaded_ = std::move(loaded);
  at_load_ = std::move(at_load);
  const auto known = std::ranges::find_if(at_load_.standing, [&](const RunCheckpoint& one) {
    return one.id == loaded_->id || std::ranges::count(one.copies, loaded_->path) != 0;
  });
  loaded_superseded_ = false;
  if (known == at_load_.standing.end()) return;
  const auto place = static_cast<std::size_t>(known - at_load_.standing.begin());
  loaded_superseded_ = place < at_load_.superseded.size() && at_load_.superseded[place];
  loaded_generation_ = known->name.generation;
  loaded_series_ = known->run ? known->run->series : 0;
}

/// If no checkpoint saved here follows the loaded one, the series continues. Else a new one begins, which supersedes
/// the run's later steps as of the load; if others have saved since, nothing.
universal::Run SaveSeries::after_load(const RunSeries& now) const {
  const std::uint64_t step = loaded_->step;
  const bool others = now.newest_generation() > at_load_.newest_generation() || now.greatest > at_load_.greatest;
  if (!went_back() && now.greatest == loaded_series_) return stay_in_series(run_directory_, now);
  const bool supersedes = went_back() && !others;
  const std::optional<std::uint64_t> from = supersedes ? std::optional(step) : std::nullopt;
  const bool continues = supersedes && loaded_superseded_;
  universal::Run series =
      begin_series(run_directory_, now, from, continues ? std::optional(loaded_series_) : std::nullopt);
  if (!log_) return series;
  if (supersedes) {
    log_(superseding_note(series, step) +
         (continues ? "; what had superseded this step is superseded itself, and steps up to it count again" : ""));
  } else {
    log_(fmt::format("series {} begins and supersedes nothing: {}", series.series,
                     others ? fmt::format("another process has saved to the run since step {} was loaded", step)
                            : fmt::format("step {} belongs to an earlier series", step)));
  }
  return series;
}

bool SaveSeries::is_decided_for(std::uint64_t step) const {
  const bool repeats = !at_load_.standing.empty() && step <= at_load_.standing.front().name.step;
  return series_.has_value() && !(loaded_since_ && went_back() && repeats);
}

void SaveSeries::decide(const RunSeries& now) {
  loaded_since_ = false;
  const bool is_empty = now.standing.empty() && now.greatest == 0;
  series_ = is_empty  ? stay_in_series(run_directory_, now)
            : loaded_ ? after_load(now)
                      : begin_series(run_directory_, now, std::nullopt);
  series_->parent = loaded_ ? loaded_->id : std::string();
}

}  // namespace ckpt
