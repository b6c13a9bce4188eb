#pragma once

#include <optional>
#include <vector>

#include "api/verbs.hpp"
#include "engine/run/run.hpp"

namespace ckpt {

/// The result of comparing files with their stored leaf hashes.
struct LeafCheck {
  std::uint64_t leaves = 0;  ///< compared
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> bad{};  ///< all damaged leaves, by their number over the files
  std::vector<Finding> damage{};     ///< one per damaged leaf, at most kMostDamage, naming file, offset and tensor
};
constexpr std::size_t kMostDamage = 100;

/// Reads `files` (each one raw placement of a file of `map`, or of whole leaves of one) and compares every leaf.
/// Collective over `comm` if it has several ranks: rank 0 gets the outcome.
Result<LeafCheck> check_leaves(Session& session, Comm& comm, const Map& map, const std::string& root,
                               std::vector<TargetFile> files, const std::vector<Hash128>& expected,
                               const std::string& phase);

/// The files that a plan makes, as a source: each raw, in the same leaves.
struct Written {
  Map map{};
  std::vector<TargetFile> files{};
};
Written as_written(const Plan& plan);

/// The tensors of a map that have bytes in [begin, end) of one of its files; at most `most` names.
Result<std::vector<std::string>> tensors_at(const Map& map, std::uint32_t file, Extent bytes, std::size_t most);

}  // namespace ckpt
