#pragma once

#include "api/catalog/prune_policies.hpp"
#include "cli/commands/commands.hpp"

namespace ckpt::cli {

/// ckpt prune --simulate: what a run under these policies would take and risk.
Answer run_simulation(Context& context, PolicyWords policy);

}  // namespace ckpt::cli
