#pragma once

#include <vector>

#include "format/model/value.hpp"

namespace ckpt::torch {

/// A leaf of nested state.
struct FlatValue {
  Path path{};
  ValuePtr value{};
};

/// The leaves that torch.distributed.checkpoint saves as separate items: it descends into dicts, and into lists that
/// hold a tensor or a dict at any depth of lists. Other lists, tuples and everything else are leaves. A dict with a key
/// that is neither text nor an integer is a leaf too, as its key has several spellings. An empty dict has no leaf.
///
/// path     of `value` from the root; parts below it are appended
/// source   torch/distributed/checkpoint/_traverse.py: traverse_state_dict (torch 2.4 and later)
std::vector<FlatValue> flatten_state(const Path& path, const ValuePtr& value);

}  // namespace ckpt::torch
