#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "api/run/run_series.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt {

/// Which series the saves of a run belong to; reads nothing itself. Decided at its first save, by what the run held at
/// the load and holds now, and at the first save after a later load of an older checkpoint, if that save repeats a step.
/// Whether training was rolled back is decided by the checkpoints in the run at the time of the load: later saves of
/// other processes are not superseded. Rank 0 decides.
class SaveSeries {
 public:
  /// A checkpoint that was loaded.
  struct Loaded {
    std::string id;
    std::string path;
    std::uint64_t step = 0;
  };
  SaveSeries(std::string run_directory, std::function<void(const std::string&)> log)
      : run_directory_(std::move(run_directory)), log_(std::move(log)) {}

  /// `at_load`: of the run, when the checkpoint was chosen; empty on ranks that do not decide.
  void note_loaded(Loaded loaded, RunSeries at_load);
  const std::optional<Loaded>& loaded() const { return loaded_; }

  /// Not before the first save; nor if an older checkpoint was loaded since the last one, and this step shows that it was
  /// not just looked at.
  bool is_decided_for(std::uint64_t step) const;
  /// `now`: of the run, at the save.
  void decide(const RunSeries& now);
  /// Of the next save, once it is decided.
  const std::optional<universal::Run>& series() const { return series_; }

 private:
  bool went_back() const { return loaded_generation_ != at_load_.newest_generation(); }
  universal::Run after_load(const RunSeries& now) const;

  const std::string run_directory_;
  const std::function<void(const std::string&)> log_;
  std::optional<Loaded> loaded_{};
  RunSeries at_load_{};
  std::uint64_t loaded_generation_ = 0;
  std::uint64_t loaded_series_ = 0;
  bool loaded_superseded_ = false;  ///< at the load, by a later series
  bool loaded_since_ = false;       ///< the decision
  std::optional<universal::Run> series_{};
};

}  // namespace ckpt
