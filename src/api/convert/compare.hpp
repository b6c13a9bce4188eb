#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/run/plan.hpp"

namespace ckpt {

/// Two tensors that should be equal bit for bit once both are of type `as`.
struct TensorPair {
  std::uint32_t left = 0;   ///< index into the left map's tensors
  std::uint32_t right = 0;  ///< of those that are right
  Dtype as = Dtype::f32;
};

/// A map and where its files are.
struct Side {
  const Map& map;
  std::string root;
};

/// Hashes both sides' tensors in one canonical layout and compares. Shapes must be equal. Returns the indices into
/// `pairs` of those that differ, ascending. Not collective: this process does it alone.
Result<std::vector<std::size_t>> compare_tensors(Session& session, const Side& left, const Side& right,
                                                 const std::vector<TensorPair>& pairs, const std::string& phase);

}  // namespace ckpt
