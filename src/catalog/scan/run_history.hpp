#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/interval_policy.hpp"
#include "catalog/scan/entry.hpp"

namespace ckpt::catalog {

/// The history of a run, from its checkpoints. Only existing ones count: a job whose checkpoints
/// were all deleted is not seen, nor a failure without a later save. Why a job ended is not
/// recorded: resuming after an orderly end (a time limit) counts as a failure, which errs on the
/// careful side.
struct RunHistory {
  std::uint64_t jobs = 0;        ///< stretches of saves with one parent in one series
  std::uint64_t restarts = 0;    ///< from one such job to the next, and checkpoints marked restored that began none
  std::uint64_t roll_backs = 0;  ///< of these: to an earlier step, which began a series
  double uptime_s = 0;           ///< of each job from its first save to its last, and one usual gap before the first
  /// stall_s and drain_s: of the saves, smoothed; step_s: the median over neighbouring saves of one job; 0 = unknown.
  MeasuredCosts measured{};
};

/// entries  of one run; foreign ones, and those without a generation, are ignored. Any order.
RunHistory run_history(std::span<const Entry> entries);

/// The failures for estimate_mtbf; plan with its low bound. 0 if no restart was seen.
double careful_mtbf(const RunHistory& history);

}  // namespace ckpt::catalog
