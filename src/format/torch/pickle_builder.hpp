#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "format/torch/pickle_graph.hpp"
#include "format/torch/pickle_intern.hpp"

namespace ckpt::pickle {

/// Makes and fills the nodes of one graph. Values that cannot change and are equal become one node: None, bools,
/// integers from 0 to 65535, the empty tuple, short texts and globals.
class Builder {
 public:
  Builder() : graph_(std::make_shared<Graph::Impl>()), intern_(*graph_) {}

  /// Where in the pickle the nodes that follow are made, bytes.
  void at(std::uint64_t offset) { offset_ = static_cast<std::uint32_t>(offset); }

  NodeId none() { return single(none_, Kind::none); }
  NodeId boolean(bool value) { return single(booleans_[value ? 1 : 0], Kind::boolean, value ? 1 : 0); }
  NodeId integer(std::int64_t value);
  NodeId real(std::uint64_t bits) { return make_wide(Kind::real, bits); }
  NodeId text(std::string_view text) { return interned(Kind::text, text); }
  NodeId bytes(std::string_view bytes) { return make_text(Kind::bytes, bytes); }
  NodeId big_integer(std::string_view decimal) { return make_text(Kind::big_integer, decimal); }
  NodeId global(std::string_view module_and_name) { return interned(Kind::global, module_and_name); }
  /// The call made last is one by NEWOBJ.
  void note_new_object(NodeId call) { graph_->new_objects.push_back(call); }
  NodeId call(NodeId function, NodeId arguments) {
    const std::array<NodeId, 2> parts{function, arguments};
    return above(make(Kind::call, function, arguments), parts);
  }
  NodeId persistent(NodeId id) { return above(make(Kind::persistent, id), std::span(&id, 1)); }
  /// A list, tuple, set or dict of these items (a dict: keys and values in turn).
  NodeId container(Kind kind, std::span<const NodeId> items);

  /// Adds to a list, set, dict or call. A container must be of the kind `wanted`; a call takes dict items or others,
  /// not both. False when it cannot hold them.
  bool add(NodeId target, Kind wanted, std::span<const NodeId> items);
  /// False if the target is not a call, or has a state.
  bool set_state(NodeId target, NodeId state);

  const Node& node(NodeId id) const { return graph_->node(id); }
  std::string_view text_of(NodeId id) const { return graph_->text_of(node(id)); }
  std::span<const NodeId> items_of(NodeId id) const { return graph_->items_of(node(id)); }
  std::uint64_t node_count() const { return graph_->nodes.end(); }
  std::uint64_t memory_bytes() const {
    return graph_->bytes() + intern_.bytes() + heights_.bytes() + small_integers_.capacity() * sizeof(NodeId);
  }
  /// True when the values below `root` nest no deeper than `max_depth`. A cycle is not depth.
  bool nests_within(NodeId root, std::uint32_t max_depth) const;
  /// True when an arena has no more addresses.
  bool exhausted() const { return graph_->items.exhausted() || graph_->texts.exhausted(); }

  /// Hands the graph over with its root; the builder is empty then.
  std::shared_ptr<Graph::Impl> finish(NodeId root);

 private:
  NodeId make(Kind kind, std::uint32_t a = 0, std::uint32_t b = 0, std::uint32_t extra = 0) {
    const Node node{offset_, a, b, static_cast<std::uint32_t>(kind) | extra << 4};
    constexpr std::uint8_t kLeaf = 0;
    heights_.append(std::span(&kLeaf, 1));
    return graph_->nodes.append(std::span(&node, 1));
  }
  NodeId make_wide(Kind kind, std::uint64_t value) {
    return make(kind, static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32));
  }
  NodeId make_text(Kind kind, std::string_view text);
  NodeId single(NodeId& cache, Kind kind, std::uint32_t a = 0) {
    if (cache == kNone) cache = make(kind, a);
    return cache;
  }
  NodeId interned(Kind kind, std::string_view text) {
    return intern_.find_or_make(kind, text, [&] { return make_text(kind, text); });
  }
  void extend(std::uint32_t& begin, std::uint32_t& count, bool& is_long, std::span<const NodeId> items);
  CallParts& parts(Node& call);

  // Heights are stored while nodes are made, as the parts of a node are then still in the cache: 0 for a leaf, else 1
  // above the highest of its parts. A height is final unless a node grows after another took it as a part; then, and if
  // values nest deeper than metadata does, heights are recomputed.
  static constexpr std::uint8_t kTaken = 0x80;
  static constexpr std::uint8_t kHighest = 0x7f;
  NodeId above(NodeId node, std::span<const NodeId> parts) {
    std::uint8_t height = 0;
    for (const NodeId part : parts) {
      std::uint8_t& of_part = *heights_.at(part);
      height = std::max<std::uint8_t>(height, of_part & kHighest);
      of_part |= kTaken;
    }
    std::uint8_t& of_node = *heights_.at(node);
    if (height < (of_node & kHighest)) return node;
    if ((of_node & kTaken) != 0 || height == kHighest) heights_known_ = false;
    of_node = static_cast<std::uint8_t>((of_node & kTaken) | std::min<int>(height + 1, kHighest));
    return node;
  }

  std::shared_ptr<Graph::Impl> graph_;
  Interner intern_;
  Runs<std::uint8_t, 12> heights_;  // by node, and kTaken
  bool heights_known_ = true;
  std::uint32_t offset_ = 0;
  NodeId none_ = kNone;
  NodeId empty_tuple_ = kNone;
  std::array<NodeId, 2> booleans_{kNone, kNone};
  static constexpr std::size_t kSmallIntegers = 65536;
  std::vector<NodeId> small_integers_;  // by value; as long as the largest seen needs
};

}  // namespace ckpt::pickle
