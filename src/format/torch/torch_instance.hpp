#pragma once

#include <string_view>

#include "format/torch/pickle.hpp"

/// Instances of Python classes in a pickle: NEWOBJ or REDUCE, then BUILD with their attributes.
namespace ckpt::torch {

/// The class of an instance without its module; empty if the node is not an instance.
std::string_view class_of(const pickle::Graph& graph, pickle::NodeId node);

/// An attribute in an instance's state, which is a dict, or a pair of a dict (or None) and a dict of slots; kNone if
/// missing.
pickle::NodeId attribute(const pickle::Graph& graph, pickle::NodeId state, std::string_view name);
pickle::NodeId attribute_of(const pickle::Graph& graph, pickle::NodeId instance, std::string_view name);

}  // namespace ckpt::torch
