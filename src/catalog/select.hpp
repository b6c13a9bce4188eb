#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "catalog/policy.hpp"

namespace ckpt::catalog {

inline constexpr std::uint32_t kNobody = UINT32_MAX;

/// The verdict of one rule on one checkpoint.
struct Verdict {
  enum class Kind : std::uint8_t {
    kept,             ///< `rank` from 1, `value`: bucket, remainder of no meaning else
    kept_oldest,      ///< the count is not filled: the oldest is kept as well
    kept_unmeasured,  ///< has no value of the metric; the rule keeps checkpoints without it
    passed_over,      ///< an earlier rule keeps it and the policy counts exclusively
    beyond,           ///< `rank` > the limit
    held,             ///< `other` represents its bucket; `value`: the bucket
    replaced,         ///< `other`, a newer save of the step, represents the step
    off_step,         ///< `value`: step % interval, or 0 if no multiple is near
    too_soon,         ///< `value` steps or ms after `other`
    too_old,          ///< `value`: ms
    unmeasured,
    unlisted,
    untagged,
    filtered,
  } kind = Kind::filtered;
  std::uint64_t rank = 0;
  std::int64_t value = 0;
  std::uint32_t other = kNobody;  ///< index of a checkpoint

  bool keeps() const { return kind <= Kind::kept_unmeasured; }
};

/// Applies one rule to the members of a group: O(n log n).
///
/// members  indices of `checkpoints`, oldest first; only those that count: committed, readable, not superseded
/// kept     for each checkpoint, whether an earlier rule keeps it; used if the policy counts exclusively
/// returns  one verdict per member, in their order
std::vector<Verdict> apply(const Rule& rule, const Policy& policy, std::span<const Checkpoint> checkpoints,
                           std::span<const std::uint32_t> members, const std::vector<bool>& kept, Time now);

}  // namespace ckpt::catalog
