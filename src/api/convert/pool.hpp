#pragma once

#include "api/verbs.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/run.hpp"

namespace ckpt {

/// Workers and pool for a run within the session's memory bound: the pool gets the bound less this process's resident
/// memory, at most half of the bound. memory: names the smallest bound that fits.
Result<RunOptions> run_options(const Session& session, const Plan& plan);

/// Whether the layout of a target for these tensors leaves enough for a run. `tensor_memory`: of the layout, each.
/// errors  memory: names a bound that is enough, by estimate
Result<> check_layout_memory(const Session& session, std::uint64_t tensors, std::uint64_t tensor_memory);

}  // namespace ckpt
