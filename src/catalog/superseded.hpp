#pragma once

#include <optional>
#include <span>
#include <vector>

#include "catalog/retain.hpp"

namespace ckpt::catalog {

/// Since when each checkpoint is superseded; nothing if it is not. A checkpoint is superseded if a later
/// series of its run began at an earlier step: since the first such series began (its recorded start, else the
/// time by which its oldest checkpoint was both saved and committed). O(n log n), however many series a run
/// has.
std::vector<std::optional<Time>> superseded_since(std::span<const Checkpoint> checkpoints,
                                                  std::span<const SeriesBirth> births);

}  // namespace ckpt::catalog
