#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/retain.hpp"

/// Which kept checkpoints justify deletions. A checkpoint is deleted because others stay; if one of those cannot be
/// loaded, it may have to stay instead. So those are checked before anything is deleted, and only those: nothing
/// depends on the hundred thousand that stay independently.
namespace ckpt::catalog {

/// Indices of the complete, kept checkpoints that may justify decisions to delete or demote: those kept by a guard, or
/// by a rule that counts (all but exact steps, listed steps, tags and `within`). In ascending order.
std::vector<std::uint32_t> likely_support(std::span<const Checkpoint> checkpoints, const Policy& policy,
                                          const Retention& retention);

/// Indices of decisions to delete or demote that would differ if, of the complete kept checkpoints, only the `sure`
/// ones counted, found by deciding again. Empty: every decision rests on sure ones alone. For demotions the other
/// demoted ones count as well: each of them is checked before it is demoted.
///
/// checkpoints  changed in the meantime, and restored on return
/// sure         for each checkpoint
/// errors       as retain
Result<std::vector<std::uint32_t>> unsupported(std::span<Checkpoint> checkpoints, const Policy& policy,
                                               const Situation& situation, const Retention& retention,
                                               const std::vector<bool>& sure);

/// Whether it counts: committed or verified, and not virtual.
bool is_whole(const Checkpoint& checkpoint);

}  // namespace ckpt::catalog
