#include "format/torch/pickle_builder.hpp"

#include <algorithm>
#include <bit>

namespace ckpt::pickle {

NodeId Builder::integer(std::int64_t value) {
  const auto index = static_cast<std::uint64_t>(value);
  if (index >= kSmallIntegers) return make_wide(Kind::integer, index);
  if (index >= small_integers_.size())
    small_integers_.resize(std::bit_ceil(std::max<std::uint64_t>(index + 1, 256)), kNone);
  return single(small_integers_[index], Kind::integer, static_cast<std::uint32_t>(index));
}

NodeId Builder::make_text(Kind kind, std::string_view text) {
  if (text.size() > decltype(graph_->texts)::kMaxRun) {
    graph_->long_bytes += text.size() + sizeof(std::string);
    graph_->long_text_bytes += text.size();
    graph_->long_texts.emplace_back(text);
    return make(kind, static_cast<std::uint32_t>(graph_->long_texts.size() - 1), 0, 1);
  }
  const std::uint32_t begin = text.empty() ? 0 : graph_->texts.append(text);
  return make(kind, begin, static_cast<std::uint32_t>(text.size()));
}

NodeId Builder::container(Kind kind, std::span<const NodeId> items) {
  if (items.empty() && kind == Kind::tuple) return single(empty_tuple_, Kind::tuple);
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  bool is_long = false;
  extend(begin, count, is_long, items);
  return above(make(kind, begin, count, is_long ? 1 : 0), items);
}

// Nodes that grow in several steps move to a separate vector.
void Builder::extend(std::uint32_t& begin, std::uint32_t& count, bool& is_long, std::span<const NodeId> items) {
  if (items.empty()) return;
  if (!is_long && count == 0 && items.size() <= decltype(graph_->items)::kMaxRun) {
    begin = graph_->items.append(items);
    count = static_cast<std::uint32_t>(items.size());
    return;
  }
  if (!is_long) {
    std::vector<NodeId>& fresh = graph_->long_items.emplace_back();
    if (count != 0) fresh.assign(graph_->items.at(begin), graph_->items.at(begin) + count);
    graph_->long_bytes += sizeof(fresh) + fresh.capacity() * sizeof(NodeId);
    begin = static_cast<std::uint32_t>(graph_->long_items.size() - 1);
    is_long = true;
  }
  std::vector<NodeId>& own = graph_->long_items[begin];
  const std::size_t before = own.capacity();
  own.insert(own.end(), items.begin(), items.end());
  graph_->long_bytes += (own.capacity() - before) * sizeof(NodeId);
}

CallParts& Builder::parts(Node& call) {
  if (call.extra() == 0) {
    const CallParts fresh;
    call.set_extra(graph_->call_parts.append(std::span(&fresh, 1)) + 1);
  }
  return *graph_->call_parts.at(call.extra() - 1);
}

bool Builder::add(NodeId target, Kind wanted, std::span<const NodeId> items) {
  Node& node = graph_->node(target);
  if (items.empty()) return node.kind() == Kind::call || node.kind() == wanted;
  if (node.kind() == Kind::call) {
    CallParts& call = parts(node);
    const auto kind = wanted == Kind::dict ? CallParts::Items::pairs : CallParts::Items::appended;
    if (call.items != CallParts::Items::none && call.items != kind) return false;
    call.items = kind;
    std::uint32_t count = call.count;
    bool is_long = call.is_long != 0;
    extend(call.begin, count, is_long, items);
    call.count = count & 0x1fffffff;
    call.is_long = is_long ? 1 : 0;
    above(target, items);
    return true;
  }
  if (node.kind() != wanted) return false;
  bool is_long = node.extra() == 1;
  extend(node.a, node.b, is_long, items);
  node.set_extra(is_long ? 1 : 0);
  above(target, items);
  return true;
}

bool Builder::set_state(NodeId target, NodeId state) {
  Node& node = graph_->node(target);
  if (node.kind() != Kind::call) return false;
  CallParts& call = parts(node);
  if (call.state != kNone) return false;
  call.state = state;
  above(target, std::span(&state, 1));
  return true;
}

bool Builder::nests_within(NodeId root, std::uint32_t max_depth) const {
  if (heights_known_) return (*heights_.at(root) & kHighest) <= max_depth;
  return pickle::nests_within(*graph_, root, max_depth);
}

std::shared_ptr<Graph::Impl> Builder::finish(NodeId root) {
  intern_.clear();
  std::vector<NodeId>().swap(small_integers_);
  heights_ = {};
  graph_->root = root;
  return std::move(graph_);
}

}  // namespace ckpt::pickle
