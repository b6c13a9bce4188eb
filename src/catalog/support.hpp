#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/retain.hpp"

/// What a deletion rests on. A checkpoint goes because others stay; where one of those cannot be loaded after all, it
/// may have to stay instead. So those others are checked before anything goes, and only those: of a hundred thousand
/// that stay for their own sake nothing else depends.
namespace ckpt::catalog {

/// Indices of the whole ones that stay and that decisions to trash or demote may rest on: what a guard keeps, and what
/// a rule that counts (all but exact steps, listed steps, tags and `within`) keeps. In ascending order.
std::vector<std::uint32_t> likely_support(std::span<const Checkpoint> checkpoints, const Policy& policy,
                                          const Retention& retention);

/// Indices of decisions to trash or demote that would not have been made if, of what stays whole, only the `sure` ones
/// counted: as many as there are, found by deciding again. Empty: every decision rests on sure ones alone. Of demotions
/// the others that are demoted count as well: each of them is checked before it is carried out.
///
/// checkpoints  changed in the meantime, and on return as they were
/// sure         of each checkpoint
/// errors       as retain
Result<std::vector<std::uint32_t>> unsupported(std::span<Checkpoint> checkpoints, const Policy& policy,
                                               const Situation& situation, const Retention& retention,
                                               const std::vector<bool>& sure);

/// Whether it counts: committed or verified.
bool is_whole(const Checkpoint& checkpoint);

}  // namespace ckpt::catalog
