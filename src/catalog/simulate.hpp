#pragma once

#include <cstdint>
#include <vector>

#include "catalog/policy.hpp"
#include "format/result.hpp"

/// A policy tried on a run that has not been trained yet: the same decisions as of a prune after every save.
namespace ckpt::catalog {

struct Schedule {
  std::uint64_t interval = 0;  ///< steps between saves
  std::uint64_t until = 0;     ///< the last step
  Duration step_time{};        ///< how long a step takes
  std::uint64_t bytes = 0;     ///< of one checkpoint
  std::uint64_t optimizer_bytes = 0;
};
inline constexpr std::uint64_t kMostSimulatedSaves = 10'000;

/// What is kept at one moment, just after a prune.
struct SimulatedMoment {
  struct Kept {
    std::uint64_t step = 0;
    bool weights_only = false;
  };
  std::uint64_t step = 0;    ///< of the newest save
  std::vector<Kept> kept{};  ///< oldest first
  std::uint64_t bytes = 0;   ///< of these
};
inline constexpr std::uint64_t kMoments = 10;

/// Disk usage and risks of a run under a policy. Every save counts as verified; the trash is purged at its ttl. With
/// `trash.recycle` the newest deleted sets have no grace, and the next save reuses their files: of weights for its
/// weights, of optimizer state for that. (If both have about one size a save may reuse a few more.)
struct Simulation {
  std::uint64_t saves = 0;
  std::uint64_t trashed = 0;
  std::uint64_t demoted = 0;
  std::uint64_t kept = 0;  ///< at the end
  std::uint64_t kept_bytes = 0;
  std::uint64_t peak_bytes = 0;  ///< of checkpoints, trash and retired files together, just after a save
  std::uint64_t peak_step = 0;
  std::uint64_t reused_bytes = 0;  ///< of all saves: written into retired files
  std::uint64_t worst_gap = 0;     ///< steps between neighbours that are kept at the end, and before the first
  std::uint64_t worst_gap_begin = 0;
  /// Steps from one that is lost to the nearest other one, at the worst time of the run.
  std::uint64_t worst_loss = 0;
  std::uint64_t worst_loss_step = 0;
  /// Steps trained again if the newest is lost just before the next save, in the worst case.
  std::uint64_t worst_rework = 0;
  std::vector<SimulatedMoment> moments{};  ///< at most kMoments, evenly spaced; the last is the end
};

/// errors  usage: no interval, more saves than kMostSimulatedSaves, numbers too large; those of retain
Result<Simulation> simulate(const Policy& policy, const Schedule& schedule);

}  // namespace ckpt::catalog
