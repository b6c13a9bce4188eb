#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "catalog/retain.hpp"

/// Decisions in words, and in the members that documents for scripts have.
namespace ckpt::catalog {

const char* action_name(Action action);  ///< "KEEP", "DEMOTE", "TRASH", "SKIP", "BLOCK"

/// One reason. `rule` is the id of a rule, "guard.newest" or "floor.pinned".
struct Explanation {
  std::string rule{};
  std::optional<std::uint64_t> rank{};
  std::optional<std::uint64_t> limit{};
  std::string bucket{};  ///< "2026-01-03T10"
  std::string value{};   ///< the compared value: "2.113", "36 h"
  std::string text{};    ///< "in the newest 3 (2nd)", "not a multiple of 1000"
};

/// The reason of a checkpoint in words. `checkpoints` and `policy` are those that were decided about.
Explanation explain(const Reason& reason, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                    const Policy& policy);

/// All that a decision was made from.
struct Explanations {
  std::vector<Explanation> reasons{};
  std::vector<Explanation> blockers{};
  std::vector<Explanation> near_misses{};
};
Explanations explain(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                     const Policy& policy);

/// The WHY of one line: reasons, blockers and near misses.
std::string why(const Decision& decision, const Explanations& explanation);
std::string why(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                const Policy& policy);

/// Why it stays: its reasons and blockers alone.
std::string why_kept(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                     const Policy& policy);

/// "36 h", "2.5 d", "90 s": a length of time in one unit.
std::string duration_text(Duration duration);

/// The meaning of a rule, for --check-policy: "the newest 3", "every 10000 steps (exact), at most 5".
std::string rule_meaning(const Rule& rule);

}  // namespace ckpt::catalog
