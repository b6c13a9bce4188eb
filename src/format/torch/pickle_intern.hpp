#pragma once

#include <xxhash.h>

#include "format/torch/pickle_graph.hpp"

namespace ckpt::pickle {

/// Equal short texts and globals become one node: checkpoint metadata repeats every name many times over.
class Interner {
 public:
  static constexpr std::size_t kLongest = 512;  ///< bytes; longer texts are not looked up

  explicit Interner(const Graph::Impl& graph) : graph_(graph) {}

  template <class Make>
  NodeId find_or_make(Kind kind, std::string_view text, Make&& make) {
    if (text.size() > kLongest) return make();
    if (count_ * 4 >= slots_.size() * 3) grow();
    const std::uint64_t hash = hash_of(kind, text);
    for (std::size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot] == kNone) {
        ++count_;
        return slots_[slot] = make();
      }
      const Node& node = graph_.node(slots_[slot]);
      if (node.kind() == kind && graph_.text_of(node) == text) return slots_[slot];
    }
  }

  std::uint64_t bytes() const { return slots_.size() * sizeof(NodeId); }
  void clear() { std::vector<NodeId>().swap(slots_); }

 private:
  static std::uint64_t hash_of(Kind kind, std::string_view text) {
    return XXH3_64bits_withSeed(text.data(), text.size(), static_cast<std::uint64_t>(kind));
  }
  void grow() {
    std::vector<NodeId> larger(slots_.empty() ? 64 : slots_.size() * 2, kNone);
    for (const NodeId id : slots_) {
      if (id == kNone) continue;
      const Node& node = graph_.node(id);
      std::size_t slot = hash_of(node.kind(), graph_.text_of(node)) & (larger.size() - 1);
      while (larger[slot] != kNone) slot = (slot + 1) & (larger.size() - 1);
      larger[slot] = id;
    }
    slots_ = std::move(larger);
  }

  const Graph::Impl& graph_;
  std::vector<NodeId> slots_;  // open addressing; a power of two
  std::size_t count_ = 0;
};

}  // namespace ckpt::pickle
