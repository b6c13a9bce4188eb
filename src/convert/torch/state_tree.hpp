#pragma once

#include <cstdint>
#include <vector>

#include "convert/optimizer_roles.hpp"
#include "format/model/value.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt::torch {

/// The value at the end of a path through nested state.
struct Leaf {
  enum class Kind : std::uint8_t {
    tensor,  ///< of any kind: plain, sparse, a bare storage
    object,  ///< anything else that is kept as one value
  } kind = Kind::object;
  std::uint32_t step = 0;  ///< the last of its path; see StateTree::path
  pickle::NodeId node = pickle::kNone;
};

/// A pickle's nested state.
struct StateTree {
  /// One part of a path and the step before it. Paths share their beginnings: a tree of shared containers unfolds to
  /// many leaves.
  struct Step {
    std::uint32_t before = 0;
    PathPart part{};
  };
  std::vector<Step> steps{};                 ///< the first is the root, which has no part
  std::vector<Leaf> leaves{};                ///< in the pickle's order
  std::vector<OptimizerState> optimizers{};  ///< dicts that hold "state" and "param_groups"

  /// The path that ends with this step; empty: the root.
  Path path(std::uint32_t step) const;
};

/// Follows dicts, lists and tuples down to their leaves. Long sequences of plain values, sets and empty containers are
/// leaves; so are, below the root, dicts without tensors that have a key which is neither text nor an integer. An object
/// of a class is a leaf too, unless a tensor is inside: then its state's entries follow by their keys, its arguments
/// below "args". A dict's "_metadata" attribute (torch.nn.Module.state_dict) is a leaf of that key.
///
/// refused: it unfolds to more than 2 million values (shared containers count each time they are reached), or its names to
/// more than 256 MiB beyond the text that the pickle holds
Result<StateTree> read_tree(const pickle::Graph& graph);

/// True for tensors of any kind, plain or not, and bare storages.
bool is_tensor(const pickle::Graph& graph, pickle::NodeId node);

}  // namespace ckpt::torch
