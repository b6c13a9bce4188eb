#pragma once

#include "api/catalog/prune.hpp"
#include "engine/io/io.hpp"

namespace ckpt {

/// Finds the checkpoints of a plan that --apply will keep because they hold files that ckpt did not write:
/// PrunePart::held_back. The plan's totals become those of the rest. Directories that cannot be read now are reported
/// when the plan is executed; so are the unchecked ones of a plan of many thousands, with a warning.
void hold_back(Io& io, PrunePlan& plan);

/// Takes from what the rest frees the files that have names elsewhere: hard links take their space once.
void count_shared_once(Io& io, PrunePlan& plan);

}  // namespace ckpt
