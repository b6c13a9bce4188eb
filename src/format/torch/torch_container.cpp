#include <algorithm>
#include <array>

#include "format/torch/torch_object.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

using Pairs = std::vector<std::pair<NodeId, NodeId>>;

Pairs pairs_of(std::span<const NodeId> items) {
  Pairs pairs;
  pairs.reserve(items.size() / 2);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) pairs.emplace_back(items[i], items[i + 1]);
  return pairs;
}

// The one argument of a call, or kNone.
NodeId only_argument(const Graph& graph, NodeId node) {
  const std::span<const NodeId> arguments = graph.items(graph.arguments(node));
  return arguments.size() == 1 ? arguments[0] : kNone;
}

bool is_dict_class(std::string_view name) {
  return name == "collections OrderedDict" || name == "collections defaultdict" || name == "collections Counter";
}

// OrderedDict([[k, v], ...]) as Python 2 wrote it, Counter({...}); nothing if the argument is neither.
std::optional<Pairs> argument_pairs(const Graph& graph, NodeId node) {
  const NodeId argument = only_argument(graph, node);
  if (graph.kind(argument) == Kind::dict) return pairs_of(graph.items(argument));
  if (graph.kind(argument) != Kind::list) return std::nullopt;
  Pairs pairs;
  for (const NodeId item : graph.items(argument)) {
    const std::span<const NodeId> pair = graph.items(item);
    if (pair.size() != 2) return std::nullopt;
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

// A dict state; also (dict or None, dict of __slots__).
std::optional<Pairs> state_pairs(const Graph& graph, NodeId state) {
  if (graph.kind(state) == Kind::dict) return pairs_of(graph.items(state));
  const std::span<const NodeId> halves = graph.items(state);
  if (graph.kind(state) != Kind::tuple || halves.size() != 2 || graph.kind(halves[1]) != Kind::dict) {
    return std::nullopt;
  }
  if (graph.kind(halves[0]) != Kind::dict && graph.kind(halves[0]) != Kind::none) return std::nullopt;
  Pairs pairs = pairs_of(graph.items(halves[0]));
  const Pairs slots = pairs_of(graph.items(halves[1]));
  pairs.insert(pairs.end(), slots.begin(), slots.end());
  return pairs;
}

}  // namespace

std::optional<Pairs> as_mapping(const Graph& graph, NodeId node) {
  if (graph.kind(node) == Kind::dict) return pairs_of(graph.items(node));
  if (graph.kind(node) != Kind::call) return std::nullopt;
  if (graph.has_pairs(node)) return pairs_of(graph.items(node));
  if (is_dict_class(graph.callee_name(node))) {
    if (auto pairs = argument_pairs(graph, node)) return pairs;
    return Pairs{};
  }
  return state_pairs(graph, graph.state(node));
}

std::optional<std::vector<NodeId>> as_sequence(const Graph& graph, NodeId node) {
  const Kind kind = graph.kind(node);
  NodeId holder = node;
  if (kind == Kind::call) {
    const std::string_view name = graph.callee_name(node);
    constexpr std::array<std::string_view, 5> kSequences{"torch Size", "__builtin__ set", "builtins set",
                                                         "__builtin__ frozenset", "builtins frozenset"};
    if (std::find(kSequences.begin(), kSequences.end(), name) == kSequences.end()) return std::nullopt;
    holder = only_argument(graph, node);
    if (holder == kNone) return std::vector<NodeId>{};
  }
  const Kind held = graph.kind(holder);
  if (held != Kind::list && held != Kind::tuple && held != Kind::set) return std::nullopt;
  const std::span<const NodeId> items = graph.items(holder);
  return std::vector<NodeId>(items.begin(), items.end());
}

std::optional<EnumMember> as_enum_member(const Graph& graph, NodeId node) {
  const std::string_view callee = graph.callee_name(node);
  if (callee != "__builtin__ getattr" && callee != "builtins getattr") return std::nullopt;
  const std::span<const NodeId> arguments = graph.items(graph.arguments(node));
  if (arguments.size() != 2 || graph.kind(arguments[0]) != Kind::global || graph.kind(arguments[1]) != Kind::text)
    return std::nullopt;
  return EnumMember{.class_name = graph.text(arguments[0]), .name = graph.text(arguments[1])};
}

namespace {

// deepspeed/runtime/zero/config.py, ZeroStageEnum; `max_stage` is another name of `weights`.
std::optional<std::int64_t> zero_stage(const EnumMember& member) {
  constexpr std::array<std::string_view, 4> kNames{"disabled", "optimizer_states", "gradients", "weights"};
  const auto found = std::ranges::find(kNames, member.name);
  if (!member.class_name.ends_with(" ZeroStageEnum") || found == kNames.end()) return std::nullopt;
  return found - kNames.begin();
}

}  // namespace

std::optional<std::int64_t> as_integer(const Graph& graph, NodeId node) {
  switch (graph.kind(node)) {
    case Kind::integer:
      return graph.integer(node);
    case Kind::boolean:
      return graph.boolean(node) ? 1 : 0;
    case Kind::call: {  // an enum: its class called with its value
      if (const auto member = as_enum_member(graph, node)) return zero_stage(*member);
      const NodeId value = only_argument(graph, node);
      if (graph.kind(value) != Kind::integer || graph.state(node) != kNone) return std::nullopt;
      return graph.integer(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<std::string> as_text(const Graph& graph, NodeId node) {
  if (graph.kind(node) != Kind::text) return std::nullopt;
  return std::string(graph.text(node));
}

std::optional<Shape> as_shape(const Graph& graph, NodeId node) {
  if (graph.kind(node) == Kind::set) return std::nullopt;
  const auto items = as_sequence(graph, node);
  if (!items) return std::nullopt;
  Shape shape;
  for (const NodeId item : *items) {
    if (graph.kind(item) != Kind::integer || graph.integer(item) < 0) return std::nullopt;
    shape.push_back(static_cast<std::uint64_t>(graph.integer(item)));
  }
  return shape;
}

}  // namespace ckpt::torch
