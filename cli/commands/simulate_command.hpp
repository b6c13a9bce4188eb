#pragma once

#include "api/prune_policies.hpp"
#include "cli/commands/commands.hpp"

namespace ckpt::cli {

/// ckpt prune --simulate: the disk usage and the risks of these policies for a run.
Answer run_simulation(Context& context, PolicyWords policy);

}  // namespace ckpt::cli
