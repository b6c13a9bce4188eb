#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/index/entry.hpp"
#include "catalog/interval_policy.hpp"

namespace ckpt::catalog {

/// What the checkpoints of one run tell of how it went. Only what still stands on the disk is counted: a job all of
/// whose checkpoints were deleted is not seen, and neither is a failure that nothing was saved after. Why a job ended
/// is not recorded: an orderly end (a time limit) that was resumed from counts as a failure, which errs on the careful
/// side.
struct RunHistory {
  std::uint64_t jobs = 0;        ///< stretches of saves with one parent in one series
  std::uint64_t restarts = 0;    ///< from one such job to the next, and checkpoints marked restored that began none
  std::uint64_t roll_backs = 0;  ///< of these: to an earlier step, which began a series
  double uptime_s = 0;           ///< of each job from its first save to its last, and one usual gap before the first
  /// stall_s and drain_s: of the saves, smoothed; step_s: the median over neighbouring saves of one job; 0 = unknown.
  MeasuredCosts measured{};
};

/// entries  of one run; foreign ones, and those without a generation, tell nothing. Any order.
RunHistory run_history(std::span<const Entry> entries);

/// The failures as they count for estimate_mtbf; its low bound is to be planned with. 0 where no restart was seen.
double careful_mtbf(const RunHistory& history);

}  // namespace ckpt::catalog
