#pragma once

#include <cstdint>

#include "engine/comm/comm.hpp"
#include "engine/run/run.hpp"
#include "format/result.hpp"

/// What all ranks of a job did together.
namespace ckpt {

/// Rank 0's report has the totals of all ranks.
Result<> sum_on_root(Comm& comm, RunReport& report, Deadline deadline);

/// The greatest peak of all ranks; `beside`: this rank's memory that is not counted as resident. The target is
/// published by now, so losing a rank here only makes the peak unknown.
std::uint64_t greatest_peak(Comm& comm, std::uint64_t beside);

}  // namespace ckpt
