#include "format/torch/dtensor.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "format/checked.hpp"
#include "format/model/cut.hpp"
#include "format/torch/torch_instance.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

constexpr std::size_t kMostPieces = 65536;
constexpr std::size_t kMostMeshDims = 64;

tl::unexpected<Error> failed(const Graph& graph, NodeId node, std::string why, Errc code = Errc::corrupt) {
  return fail({.code = code,
               .message = "DTensor: " + std::move(why),
               .offset = node == kNone ? std::nullopt : std::optional(graph.offset(node))});
}

/// An int >= 0, or a tuple or list of them, laid out flat one level deep.
std::optional<std::vector<std::uint64_t>> numbers(const Graph& graph, NodeId node) {
  if (node == kNone) return std::nullopt;
  std::vector<std::uint64_t> out;
  const auto add = [&](NodeId item) {
    const auto value = as_integer(graph, item);
    if (!value || *value < 0) return false;
    out.push_back(static_cast<std::uint64_t>(*value));
    return true;
  };
  const auto items = as_sequence(graph, node);
  if (!items) return add(node) ? std::optional(out) : std::nullopt;
  for (const NodeId item : *items) {
    if (!add(item)) return std::nullopt;
  }
  return out;
}

/// One dimension of a mesh: cells along it and how far apart they are in the list of ranks. A dimension that was
/// flattened from several counts through all of them, the last one fastest.
struct Axis {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;

  std::uint64_t size() const {  // read_axes checked the product
    return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{1}, std::multiplies<>());
  }
};

Result<Axis> read_axis(const Graph& graph, NodeId sizes, NodeId strides) {
  auto size = numbers(graph, sizes);
  auto stride = numbers(graph, strides);
  if (!size || !stride || size->size() != stride->size() || size->size() > kMostMeshDims) {
    return failed(graph, sizes, "the layout of its mesh does not consist of sizes and strides");
  }
  return Axis{*std::move(size), *std::move(stride)};
}

/// Axes of a DeviceMesh: `_layout` holds one layout an axis (torch 2.13), or nested tuples `shape` and `stride` (2.9 to
/// 2.12); before, `mesh` is a tensor whose elements are in order of `_flatten_mesh_list`.
Result<std::vector<Axis>> read_axes(const Graph& graph, NodeId mesh) {
  std::vector<Axis> axes;
  if (const NodeId layout = attribute_of(graph, mesh, "_layout"); layout != kNone && graph.kind(layout) == Kind::call) {
    if (const NodeId each = attribute_of(graph, layout, "axes"); each != kNone) {
      const auto items = as_sequence(graph, each);
      if (!items || items->size() > kMostMeshDims) return failed(graph, each, "its mesh has no list of axes");
      for (const NodeId item : *items) {
        CKPT_TRY(axes.emplace_back(),
                 read_axis(graph, attribute_of(graph, item, "shape"), attribute_of(graph, item, "stride")));
      }
      return axes;
    }
    const NodeId sizes = attribute_of(graph, layout, "shape");
    const NodeId strides = attribute_of(graph, layout, "stride");
    const auto size_items = sizes == kNone ? std::nullopt : as_sequence(graph, sizes);
    const auto stride_items = strides == kNone ? std::nullopt : as_sequence(graph, strides);
    if (!size_items && sizes != kNone) {  // one axis, an int each
      CKPT_TRY(axes.emplace_back(), read_axis(graph, sizes, strides));
      return axes;
    }
    if (!size_items || !stride_items || size_items->size() != stride_items->size() ||
        size_items->size() > kMostMeshDims) {
      return failed(graph, layout, "the layout of its mesh does not consist of sizes and strides");
    }
    for (std::size_t i = 0; i < size_items->size(); ++i) {
      CKPT_TRY(axes.emplace_back(), read_axis(graph, (*size_items)[i], (*stride_items)[i]));
    }
    return axes;
  }
  const NodeId tensor = attribute_of(graph, mesh, "mesh");
  if (tensor == kNone) return failed(graph, mesh, "its mesh has no shape", Errc::unsupported);
  CKPT_TRY(const auto view, as_tensor(graph, tensor));
  if (!view || view->shape.size() > kMostMeshDims) return failed(graph, tensor, "its mesh is not a tensor of ranks");
  std::uint64_t stride = 1;
  for (std::size_t d = view->shape.size(); d-- > 0;) {
    axes.push_back({{view->shape[d]}, {stride}});
    CKPT_TRY(stride, checked_mul(stride, view->shape[d]));
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

Result<Placement> read_placement(const Graph& graph, NodeId node) {
  std::string_view name = class_of(graph, node);
  if (name.starts_with('_')) name.remove_prefix(1);
  if (name == "Replicate") return Placement{};
  if (name == "Partial" || name == "MaskPartial") return Placement{.kind = Placement::Kind::partial};
  const bool strided = name == "StridedShard";
  if (name != "Shard" && !strided) {
    return failed(graph, node, "a placement of the unknown class '" + std::string(graph.callee_name(node)) + "'",
                  Errc::unsupported);
  }
  // The state names them; pickles of bound C++ classes may give the arguments (dim, split_factor) instead.
  const auto arguments =
      graph.arguments(node) == kNone ? std::span<const NodeId>{} : graph.items(graph.arguments(node));
  const auto number = [&](std::string_view key, std::size_t at) -> std::optional<std::uint64_t> {
    NodeId found = attribute_of(graph, node, key);
    if (found == kNone && at < arguments.size()) found = arguments[at];
    const auto value = found == kNone ? std::nullopt : as_integer(graph, found);
    return value && *value >= 0 ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
  };
  const auto dim = number("dim", 0);
  const auto factor = strided ? number("split_factor", 1) : std::optional<std::uint64_t>(1);
  if (!dim || !factor || *factor == 0) return failed(graph, node, "a shard without a dimension");
  return Placement{strided ? Placement::Kind::strided_shard : Placement::Kind::shard, *dim, *factor};
}

bool is_shard(const Placement& placement) {
  return placement.kind == Placement::Kind::shard || placement.kind == Placement::Kind::strided_shard;
}

/// The order in which mesh dimensions cut each tensor dimension: from the first on, unless `shard_order`
/// differs.
Result<> read_order(const Graph& graph, NodeId spec, DistributedView& view) {
  view.order.resize(view.global_shape.size());
  for (std::size_t m = 0; m < view.placements.size(); ++m) {
    if (is_shard(view.placements[m])) view.order[view.placements[m].dim].push_back(m);
  }
  const NodeId given = attribute_of(graph, spec, "shard_order");
  const auto entries = given == kNone ? std::nullopt : as_sequence(graph, given);
  if (!entries) return {};
  for (const NodeId entry : *entries) {
    const NodeId arguments = graph.kind(entry) == Kind::call ? graph.arguments(entry) : entry;
    const auto parts = arguments == kNone ? std::span<const NodeId>{} : graph.items(arguments);
    const auto dim = parts.size() == 2 ? as_integer(graph, parts[0]) : std::nullopt;
    const auto dims = parts.size() == 2 ? numbers(graph, parts[1]) : std::nullopt;
    if (!dim || *dim < 0 || static_cast<std::uint64_t>(*dim) >= view.order.size() || !dims) {
      return failed(graph, entry, "its shard_order does not list dimensions");
    }
    auto& order = view.order[static_cast<std::size_t>(*dim)];
    if (!std::is_permutation(order.begin(), order.end(), dims->begin(), dims->end())) {
      return failed(graph, entry, "its shard_order names other dimensions than its placements");
    }
    order.assign(dims->begin(), dims->end());
  }
  return {};
}

}  // namespace

Result<DistributedReader::Mesh> DistributedReader::read_mesh(NodeId node) const {
  if (const auto own = attribute_of(graph_, node, "_rank"); own != kNone) {
    const auto rank = as_integer(graph_, own);
    if (rank && *rank >= 0 && static_cast<std::uint64_t>(*rank) != rank_) {
      return failed(
          graph_, node,
          "it was saved by rank " + std::to_string(*rank) + ", but the file's name says rank " + std::to_string(rank_));
    }
  }
  CKPT_TRY(const std::vector<Axis> axes, read_axes(graph_, node));
  Mesh mesh;
  std::uint64_t cells = 1;
  for (const Axis& axis : axes) {
    std::uint64_t size = 1;
    for (const std::uint64_t part : axis.sizes) {
      CKPT_TRY(size, checked_mul(size, part));
    }
    CKPT_TRY(cells, checked_mul(cells, size));
    mesh.sizes.push_back(size);
  }
  NodeId list = attribute_of(graph_, node, "_flatten_rank_map");
  if (list == kNone) list = attribute_of(graph_, node, "_flatten_mesh_list");
  const auto ranks = numbers(graph_, list);
  const auto stored = numbers(graph_, attribute_of(graph_, node, "_coordinate_on_dim"));
  if (!ranks) {
    if (!stored || stored->size() != mesh.sizes.size()) {
      return failed(graph_, node, "its mesh does not list its ranks", Errc::unsupported);
    }
    mesh.coordinate = *stored;
  } else {
    if (cells > ranks->size()) return failed(graph_, node, "its mesh has more places than ranks");
    for (std::uint64_t cell = 0; cell < cells && mesh.coordinate.empty(); ++cell) {
      std::vector<std::uint64_t> coordinate(axes.size());
      std::uint64_t rest = cell;
      std::uint64_t at = 0;
      for (std::size_t d = axes.size(); d-- > 0;) {
        coordinate[d] = rest % mesh.sizes[d];
        std::uint64_t along = coordinate[d];
        rest /= mesh.sizes[d];
        for (std::size_t part = axes[d].sizes.size(); part-- > 0;) {
          CKPT_TRY(const std::uint64_t step, checked_mul(along % axes[d].sizes[part], axes[d].strides[part]));
          CKPT_TRY(at, checked_add(at, step));
          along /= axes[d].sizes[part];
        }
      }
      if (at >= ranks->size()) return failed(graph_, node, "its mesh reaches past its list of ranks");
      // A mesh cut out of a larger one lists the larger one's ranks: this is the part that begins at rank 0 there, and
      // every rank's part has the same form. The rank's own coordinate is then stored separately.
      if ((*ranks)[at] == rank_) mesh.coordinate = std::move(coordinate);
    }
    if (stored && stored->size() == mesh.sizes.size()) {
      if (!mesh.coordinate.empty() && mesh.coordinate != *stored) {
        return failed(graph_, node, "its coordinate in the mesh is not that of rank " + std::to_string(rank_));
      }
      mesh.coordinate = *stored;
    }
  }
  for (std::size_t d = 0; d < mesh.coordinate.size(); ++d) {
    if (mesh.coordinate[d] >= mesh.sizes[d]) return failed(graph_, node, "its coordinate is outside of its mesh");
  }
  return mesh;
}

Result<std::optional<DistributedView>> DistributedReader::read(NodeId node) {
  const NodeId state = wrapper_state(graph_, node, "DTensor");
  if (state == kNone) return std::nullopt;
  const NodeId local = attribute(graph_, state, "_local_tensor");
  const NodeId spec = attribute(graph_, state, "_spec");
  if (local == kNone || class_of(graph_, spec) != "DTensorSpec") {
    return failed(graph_, node, "it has no local tensor or no specification");
  }
  DistributedView out;
  CKPT_TRY(auto view, as_tensor(graph_, local));
  if (!view) return failed(graph_, local, "its local tensor is not a plain tensor", Errc::unsupported);
  out.local = *std::move(view);

  // TensorMeta is a named tuple: NEWOBJ with (shape, stride, dtype).
  const NodeId meta = attribute_of(graph_, spec, "tensor_meta");
  const auto parts = class_of(graph_, meta) == "TensorMeta" && graph_.arguments(meta) != kNone
                         ? graph_.items(graph_.arguments(meta))
                         : std::span<const NodeId>{};
  const auto shape = parts.empty() ? std::nullopt : as_shape(graph_, parts[0]);
  if (!shape || shape->size() != out.local.shape.size()) return failed(graph_, node, "its global shape is missing");
  out.global_shape = *shape;
  CKPT_TRY([[maybe_unused]] const std::uint64_t volume, checked_volume(out.global_shape));

  const NodeId mesh = attribute_of(graph_, spec, "mesh");
  if (mesh == kNone) return failed(graph_, node, "it has no mesh");
  auto known = meshes_.find(mesh);
  if (known == meshes_.end()) {
    CKPT_TRY(Mesh read, read_mesh(mesh));
    known = meshes_.emplace(mesh, std::move(read)).first;
  }
  out.mesh = known->second.sizes;
  out.coordinate = known->second.coordinate;

  const NodeId placements = attribute_of(graph_, spec, "placements");
  const auto items = placements == kNone ? std::nullopt : as_sequence(graph_, placements);
  if (!items || items->size() != out.mesh.size()) {
    return failed(graph_, node, "it does not have one placement per mesh dimension");
  }
  for (const NodeId item : *items) {
    CKPT_TRY(const Placement placement, read_placement(graph_, item));
    if (is_shard(placement) && placement.dim >= out.global_shape.size()) {
      return failed(graph_, item, "a shard along a dimension that the tensor does not have");
    }
    out.placements.push_back(placement);
  }
  CKPT_CHECK(read_order(graph_, spec, out));
  return out;
}

namespace {

/// The remaining part of a dimension: runs of the whole, one after the other in the local tensor.
using Extents = std::vector<Extent>;

std::uint64_t length_of(const Extents& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Extent& run) { return sum + run.size(); });
}

/// Appends the ranges of the whole in [part.begin, part.end) of the local dimension.
void take(const Extents& runs, Extent part, Extents& out) {
  std::uint64_t at = 0;
  for (const Extent& run : runs) {
    const std::uint64_t begin = std::max(part.begin, at);
    const std::uint64_t end = std::min(part.end, at + run.size());
    if (begin < end) {
      const Extent piece{run.begin + (begin - at), run.begin + (end - at)};
      if (!out.empty() && out.back().end == piece.begin) {
        out.back().end = piece.end;
      } else {
        out.push_back(piece);
      }
    }
    at += run.size();
  }
}

Result<Extents> cut_runs(const Extents& runs, const Placement& placement, std::uint64_t ranks, std::uint64_t index) {
  const std::uint64_t length = length_of(runs);
  Extents out;
  if (placement.kind == Placement::Kind::shard) {
    take(runs, cut::chunk({.length = length, .part_count = ranks}, index), out);
    return out;
  }
  const std::uint64_t factor = std::min(placement.split_factor, std::max<std::uint64_t>(length, 1));
  if (factor > kMostPieces || runs.size() > kMostPieces / factor) {
    return fail(Errc::refused, "DTensor: a strided shard of more than 65536 pieces");
  }
  for (std::uint64_t k = 0; k < factor; ++k) {
    const Extent outer = cut::chunk({.length = length, .part_count = placement.split_factor}, k);
    const Extent inner = cut::chunk({.length = outer.size(), .part_count = ranks}, index);
    take(runs, {outer.begin + inner.begin, outer.begin + inner.end}, out);
  }
  return out;
}

}  // namespace

Result<std::vector<LocalPiece>> local_pieces(const DistributedView& view) {
  for (const Placement& placement : view.placements) {
    if (placement.kind != Placement::Kind::partial) continue;
    return fail(Errc::unsupported, "DTensor: a partial placement, whose values are still to be summed over ranks");
  }
  if (view.coordinate.empty() && volume(view.local.shape) == 0) return std::vector<LocalPiece>{};
  if (view.coordinate.size() != view.mesh.size()) {
    return fail(Errc::corrupt, "DTensor: a local tensor on a rank outside of its mesh");
  }
  const std::size_t rank = view.global_shape.size();
  std::vector<Extents> runs;
  std::vector<Shape> local_begins;  // of each run, in the local tensor
  std::uint64_t count = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    Extents& own = runs.emplace_back();
    if (view.global_shape[d] > 0) own.push_back({0, view.global_shape[d]});
    for (const std::size_t m : view.order[d]) {
      CKPT_TRY(own, cut_runs(own, view.placements[m], view.mesh[m], view.coordinate[m]));
    }
    if (length_of(own) != view.local.shape[d]) {
      return fail(Errc::corrupt, "DTensor: dimension " + std::to_string(d) + " of the local tensor is " +
                                     std::to_string(view.local.shape[d]) + ", but its placements give " +
                                     std::to_string(length_of(own)));
    }
    Shape& begins = local_begins.emplace_back();
    std::uint64_t begin = 0;
    for (const Extent& run : own) {
      begins.push_back(begin);
      begin += run.size();
    }
    count *= own.size();
    if (count > kMostPieces) return fail(Errc::refused, "DTensor: a strided shard of more than 65536 pieces");
  }
  std::vector<LocalPiece> out;
  for (std::uint64_t k = 0; k < count; ++k) {
    LocalPiece piece{{Shape(rank), Shape(rank)}, Shape(rank)};
    std::uint64_t rest = k;
    for (std::size_t d = rank; d-- > 0;) {
      const std::size_t at = rest % runs[d].size();
      rest /= runs[d].size();
      piece.box.offset[d] = runs[d][at].begin;
      piece.box.size[d] = runs[d][at].size();
      piece.local[d] = local_begins[d][at];
    }
    out.push_back(std::move(piece));
  }
  return out;
}

}  // namespace ckpt::torch
