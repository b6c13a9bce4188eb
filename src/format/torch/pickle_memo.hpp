#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "format/torch/pickle.hpp"

namespace ckpt::pickle {

/// The memo of a pickle, in blocks that never move. Picklers number it from 0 on without gaps.
class Memo {
 public:
  void put(std::uint64_t index, NodeId id) {
    while (blocks_.size() <= index >> kShift) {
      blocks_.push_back(std::make_unique_for_overwrite<NodeId[]>(kBlock));
      std::fill_n(blocks_.back().get(), kBlock, kNone);
    }
    NodeId& entry = blocks_[index >> kShift][index & (kBlock - 1)];
    if (entry == kNone) ++count_;
    entry = id;
  }
  NodeId get(std::uint64_t index) const {
    if (index >> kShift >= blocks_.size()) return kNone;
    return blocks_[index >> kShift][index & (kBlock - 1)];
  }
  /// Entries set: the index that MEMOIZE takes.
  std::uint64_t count() const { return count_; }
  /// Memory.
  std::uint64_t bytes() const { return blocks_.size() * kBlock * sizeof(NodeId); }
  void clear() { blocks_.clear(); }

 private:
  static constexpr unsigned kShift = 10;
  static constexpr std::size_t kBlock = std::size_t{1} << kShift;
  std::vector<std::unique_ptr<NodeId[]>> blocks_;
  std::uint64_t count_ = 0;
};

}  // namespace ckpt::pickle
