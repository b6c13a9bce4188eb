#pragma once

#include "api/catalog/prune.hpp"
#include "engine/io/io.hpp"

namespace ckpt {

/// Finds what of a plan --apply will keep, as something stands in it that ckpt did not put there: PrunePart::held_back.
/// The plan's totals become those of what is left. What cannot be looked at now is told when the plan is carried out;
/// so is what a plan of many thousands has not looked at, with a warning.
void hold_back(Io& io, PrunePlan& plan);

}  // namespace ckpt
