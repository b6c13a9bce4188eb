#include "format/torch/pickle_graph.hpp"

#include <bit>

namespace ckpt::pickle {
namespace {

bool holds_text(Kind kind) {
  return kind == Kind::text || kind == Kind::bytes || kind == Kind::big_integer || kind == Kind::global;
}

bool holds_items(Kind kind) {
  return kind == Kind::list || kind == Kind::tuple || kind == Kind::set || kind == Kind::dict;
}

}  // namespace

std::string_view Graph::Impl::text_of(const Node& node) const {
  if (!holds_text(node.kind())) return {};
  if (node.extra() == 1) return long_texts[node.a];
  if (node.b == 0) return {};
  return {texts.at(node.a), node.b};
}

std::span<const NodeId> Graph::Impl::items_of(const Node& node) const {
  if (holds_items(node.kind())) {
    if (node.extra() == 1) return long_items[node.a];
    if (node.b == 0) return {};
    return {items.at(node.a), node.b};
  }
  const CallParts* parts = parts_of(node);
  if (parts == nullptr) return {};
  if (parts->is_long != 0) return long_items[parts->begin];
  if (parts->count == 0) return {};
  return {items.at(parts->begin), parts->count};
}

const CallParts* Graph::Impl::parts_of(const Node& node) const {
  if (node.kind() != Kind::call || node.extra() == 0) return nullptr;
  return call_parts.at(node.extra() - 1);
}

namespace {

/// The edges of one node to others, taken one after the other.
class Edges {
 public:
  Edges(const Graph::Impl& graph, const Node& node) : items_(graph.items_of(node)) {
    if (node.kind() == Kind::persistent) fixed_[fixed_left_++] = node.a;
    if (node.kind() != Kind::call) return;
    const CallParts* parts = graph.parts_of(node);
    fixed_ = {parts == nullptr ? kNone : parts->state, node.b, node.a};
    fixed_left_ = 3;
  }
  bool next(NodeId& to) {
    if (fixed_left_ > 0) {
      to = fixed_[--fixed_left_];
      return true;
    }
    if (items_.empty()) return false;
    to = items_.front();
    items_ = items_.subspan(1);
    return true;
  }

 private:
  std::array<NodeId, 3> fixed_{};  // those that are not items; taken from the end
  std::size_t fixed_left_ = 0;
  std::span<const NodeId> items_;
};

}  // namespace

bool nests_within(const Graph::Impl& graph, NodeId root, std::uint32_t max_depth) {
  constexpr std::uint16_t kOnPath = 0xffff;
  const std::uint32_t limit = std::min<std::uint32_t>(max_depth, kOnPath - 1);
  struct Frame {
    NodeId node;
    std::uint16_t height;  // of the finished edges
    Edges edges;
  };
  std::vector<std::uint16_t> heights(graph.nodes.end(), 0);  // 0 = not yet seen; a finished node has at least 1
  std::vector<Frame> path;
  const auto enter = [&](NodeId id) {
    heights[id] = kOnPath;
    path.push_back({id, 0, Edges(graph, graph.node(id))});
    return path.size() <= limit;
  };
  const auto branches = [&](NodeId id) {
    const Kind kind = graph.node(id).kind();
    return holds_items(kind) || kind == Kind::call || kind == Kind::persistent;
  };
  if (branches(root) && !enter(root)) return false;
  while (!path.empty()) {
    Frame& top = path.back();
    NodeId child = kNone;
    if (!top.edges.next(child)) {
      const auto height = static_cast<std::uint16_t>(top.height + 1);
      heights[top.node] = height;
      path.pop_back();
      if (!path.empty()) path.back().height = std::max(path.back().height, height);
      continue;
    }
    if (child == kNone || heights[child] == kOnPath) continue;
    if (heights[child] != 0) {
      if (path.size() + heights[child] > limit) return false;
      top.height = std::max(top.height, heights[child]);
    } else if (branches(child) && !enter(child)) {
      return false;
    }
  }
  return true;
}

namespace {

// The value of kNone, so that a missing part reads as None.
constexpr Node kAbsent{0, 0, 0, static_cast<std::uint32_t>(Kind::none)};

const Node& node_of(const Graph::Impl& graph, NodeId id) {
  return id == kNone ? kAbsent : graph.node(id);
}

}  // namespace

Kind Graph::kind(NodeId id) const {
  return node_of(*impl_, id).kind();
}

bool Graph::boolean(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  return node.kind() == Kind::boolean && node.a != 0;
}

std::int64_t Graph::integer(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  if (node.kind() != Kind::integer) return 0;
  return static_cast<std::int64_t>(std::uint64_t{node.b} << 32 | node.a);
}

double Graph::real(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  if (node.kind() != Kind::real) return 0;
  return std::bit_cast<double>(std::uint64_t{node.b} << 32 | node.a);
}

std::string_view Graph::text(NodeId id) const {
  return impl_->text_of(node_of(*impl_, id));
}

std::span<const NodeId> Graph::items(NodeId id) const {
  return impl_->items_of(node_of(*impl_, id));
}

bool Graph::has_pairs(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  if (node.kind() == Kind::dict) return true;
  const CallParts* parts = impl_->parts_of(node);
  return parts != nullptr && parts->items == CallParts::Items::pairs;
}

NodeId Graph::callee(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  return node.kind() == Kind::call ? node.a : kNone;
}

NodeId Graph::arguments(NodeId id) const {
  const Node& node = node_of(*impl_, id);
  if (node.kind() == Kind::call) return node.b;
  return node.kind() == Kind::persistent ? node.a : kNone;
}

NodeId Graph::state(NodeId id) const {
  const CallParts* parts = impl_->parts_of(node_of(*impl_, id));
  return parts == nullptr ? kNone : parts->state;
}

std::uint64_t Graph::offset(NodeId id) const {
  return node_of(*impl_, id).offset;
}

NodeId Graph::root() const {
  return impl_->root;
}

std::uint64_t Graph::text_bytes() const {
  return impl_->texts.bytes() + impl_->long_text_bytes;
}

std::size_t Graph::node_count() const {
  return impl_->nodes.end();
}

NodeId Graph::find(NodeId dict, std::string_view key) const {
  if (!has_pairs(dict)) return kNone;
  const std::span<const NodeId> pairs = items(dict);
  for (std::size_t i = pairs.size(); i >= 2; i -= 2) {  // from the end: a key set again replaces the earlier value
    const NodeId candidate = pairs[i - 2];
    if (kind(candidate) == Kind::text && text(candidate) == key) return pairs[i - 1];
  }
  return kNone;
}

bool Graph::is_new_object(NodeId id) const {
  return std::binary_search(impl_->new_objects.begin(), impl_->new_objects.end(), id);
}

bool Graph::is_global(NodeId id, std::string_view module_and_name) const {
  return kind(id) == Kind::global && text(id) == module_and_name;
}

std::string_view Graph::callee_name(NodeId id) const {
  const NodeId function = callee(id);
  if (kind(function) != Kind::global) return {};
  return text(function);
}

}  // namespace ckpt::pickle
