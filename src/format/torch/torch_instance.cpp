#include "format/torch/torch_instance.hpp"

namespace ckpt::torch {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

std::string_view class_of(const Graph& graph, NodeId node) {
  if (node == kNone || graph.kind(node) != Kind::call) return {};
  const std::string_view name = graph.callee_name(node);
  return name.substr(name.rfind(' ') + 1);
}

NodeId attribute(const Graph& graph, NodeId state, std::string_view name) {
  if (state == kNone) return kNone;
  if (graph.kind(state) != Kind::tuple) return graph.find(state, name);
  for (const NodeId part : graph.items(state)) {
    if (const NodeId found = graph.find(part, name); found != kNone) return found;
  }
  return kNone;
}

NodeId attribute_of(const Graph& graph, NodeId instance, std::string_view name) {
  if (instance == kNone || graph.kind(instance) != Kind::call) return kNone;
  return attribute(graph, graph.state(instance), name);
}

}  // namespace ckpt::torch
