#include "format/torch/sharded_tensor.hpp"

#include <string_view>
#include <utility>

#include "format/checked.hpp"
#include "format/torch/torch_instance.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

tl::unexpected<Error> not_sharded(const Graph& graph, NodeId node, std::string why, Errc code = Errc::corrupt) {
  return fail({.code = code,
               .message = "ShardedTensor: " + std::move(why),
               .offset = node == kNone ? std::nullopt : std::optional(graph.offset(node))});
}

/// "float32" of the properties, which are a tuple that begins with the dtype, or (as a dataclass) a dict.
std::string dtype_of(const Graph& graph, NodeId properties) {
  const NodeId state = properties != kNone && graph.kind(properties) == Kind::call ? graph.state(properties) : kNone;
  if (state == kNone) return {};
  NodeId dtype = attribute(graph, state, "dtype");
  if (dtype == kNone && graph.kind(state) == Kind::tuple && !graph.items(state).empty()) dtype = graph.items(state)[0];
  constexpr std::string_view kTorch = "torch ";
  if (dtype == kNone || graph.kind(dtype) != Kind::global || !graph.text(dtype).starts_with(kTorch)) return {};
  return std::string(graph.text(dtype).substr(kTorch.size()));
}

Result<ShardedView::Part> read_part(const Graph& graph, NodeId node, const ShardedView& whole) {
  const NodeId tensor = attribute_of(graph, node, "tensor");
  const NodeId metadata = attribute_of(graph, node, "metadata");
  const NodeId offsets = attribute_of(graph, metadata, "shard_offsets");
  const NodeId sizes = attribute_of(graph, metadata, "shard_sizes");
  if (tensor == kNone || offsets == kNone || sizes == kNone) {
    return not_sharded(graph, node, "a part without tensor, offsets and sizes");
  }
  CKPT_TRY(auto view, as_tensor(graph, tensor));
  if (!view) return not_sharded(graph, tensor, "a part that is not a plain tensor", Errc::unsupported);
  auto offset = as_shape(graph, offsets);
  auto size = as_shape(graph, sizes);
  if (!offset || !size) return not_sharded(graph, metadata, "a part whose offsets and sizes are not numbers");
  ShardedView::Part part{.box = {*std::move(offset), *std::move(size)}, .local = *std::move(view)};
  if (!fits(part.box, whole.global_shape)) return not_sharded(graph, metadata, "a part outside of the tensor");
  if (part.local.shape != part.box.size) return not_sharded(graph, tensor, "a part whose shape differs from its sizes");
  if (part.local.dtype_name != whole.dtype_name) return not_sharded(graph, tensor, "a part of another dtype");
  return part;
}

}  // namespace

Result<std::optional<ShardedView>> as_sharded_tensor(const Graph& graph, NodeId node, std::uint64_t rank) {
  const NodeId state = wrapper_state(graph, node, "ShardedTensor");
  if (state == kNone) return std::nullopt;
  // (local shards, metadata, process group, sharding spec, init_rrefs)
  const auto fields = graph.kind(state) == Kind::tuple ? graph.items(state) : std::span<const NodeId>{};
  if (fields.size() < 3) return not_sharded(graph, node, "its state is invalid");
  const auto parts = as_sequence(graph, fields[0]);
  const auto shape = attribute_of(graph, fields[1], "size") == kNone
                         ? std::nullopt
                         : as_shape(graph, attribute_of(graph, fields[1], "size"));
  ShardedView out;
  out.dtype_name = dtype_of(graph, attribute_of(graph, fields[1], "tensor_properties"));
  if (!parts || !shape || out.dtype_name.empty()) return not_sharded(graph, node, "it has no parts, size or dtype");
  out.global_shape = *shape;
  CKPT_TRY([[maybe_unused]] const std::uint64_t volume, checked_volume(out.global_shape));
  if (const NodeId own = attribute_of(graph, fields[2], "global_rank"); own != kNone) {
    const auto saved_by = as_integer(graph, own);
    if (saved_by && *saved_by >= 0 && static_cast<std::uint64_t>(*saved_by) != rank) {
      return not_sharded(graph, node,
                         "it was saved by rank " + std::to_string(*saved_by) + ", but the file's name says rank " +
                             std::to_string(rank));
    }
  }
  for (const NodeId part : *parts) {
    CKPT_TRY(ShardedView::Part read, read_part(graph, part, out));
    out.parts.push_back(std::move(read));
  }
  return out;
}

}  // namespace ckpt::torch
