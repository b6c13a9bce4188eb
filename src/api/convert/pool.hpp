#pragma once

#include "api/verbs.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/run.hpp"

namespace ckpt {

/// Workers and pool for a run within the session's memory bound: the pool gets the bound less this process's resident
/// memory, at most half of the bound. memory: names the smallest bound that fits.
Result<RunOptions> run_options(const Session& session, const Plan& plan);

}  // namespace ckpt
