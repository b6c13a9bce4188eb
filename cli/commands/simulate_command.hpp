#pragma once

#include "api/prune_policies.hpp"
#include "cli/commands/commands.hpp"

namespace ckpt::cli {

/// ckpt policy simulate and ckpt prune --simulate: the disk usage and the risks of the policies of `store` for a run,
/// and a picture of what is kept over time.
Answer run_simulation(Context& context, const std::string& store, PolicyWords policy);

}  // namespace ckpt::cli
