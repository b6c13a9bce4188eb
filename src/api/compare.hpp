#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/plan.hpp"

namespace ckpt {

/// Two tensors that should be equal bit for bit once both are of type `as`.
struct TensorPair {
  std::uint32_t left = 0;   ///< index into the left map's tensors
  std::uint32_t right = 0;  ///< likewise, right
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

/// What reading every byte of these tensors (the left ones) showed; checksums of the format are compared on the way.
struct ReadThrough {
  std::uint64_t bytes = 0;
  std::uint64_t crc_checked = 0;
  bool crc_unread = false;  ///< the format has checksums, but none whose bytes were read whole
};
Result<ReadThrough> read_through(Session& session, const Side& side, const std::vector<TensorPair>& tensors,
                                 const std::string& phase);

/// Masters of 16-bit parameters: each pair is (parameter, master), to be compared as the parameter's type. Derived
/// parameters, which are made from their master, are left out.
std::vector<TensorPair> master_pairs(const Map& map);

/// A view of a map in which, of every chunk that several files hold, the n-th is taken (the last where there are
/// fewer); `replica_count` is the greatest number of holders of any chunk of these tensors.
Map replica_view(const Map& map, std::size_t n);
Result<std::size_t> replica_count(const Map& map);

}  // namespace ckpt
