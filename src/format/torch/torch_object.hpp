#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt::torch {

/// A strided view of one storage: what `_rebuild_tensor_v2`, `_v3`, `_rebuild_parameter`, `_rebuild_from_type_v2`
/// (of torch Tensor) and friends describe. Checked: offset and strides are >= 0 and the view ends inside the
/// storage's element count.
struct TensorView {
  std::string storage_key;            ///< entry "data/<key>" of the file
  std::string dtype_name;             ///< torch's: "float32", "complex128", "float4_e2m1fn_x2"
  std::uint64_t storage_bytes = 0;    ///< as in the persistent id
  std::uint64_t storage_offset = 0;   ///< elements
  Shape shape;                        ///< as torch sees it (float4_e2m1fn_x2: packed pairs)
  std::vector<std::int64_t> strides;  ///< elements
  unsigned element_bytes = 0;
  pickle::NodeId attributes = pickle::kNone;  ///< state of _rebuild_from_type_v2 or of a parameter (ds_id, ...)
  bool has_attributes = false;                ///< Python attributes, or its own class, which nothing else records
  bool untyped = false;                       ///< its storage names no dtype: torch.load swaps no bytes of it
};

/// A storage as its persistent id describes it.
struct Storage {
  std::string key;
  std::string_view element;  ///< torch's dtype; empty: untyped
  unsigned element_bytes = 1;
  std::uint64_t bytes = 0;
};
/// The storage of a `persistent` node. corrupt: not described as torch describes storages; unsupported: a view of
/// another storage (files of torch before 0.4).
Result<Storage> as_storage(const pickle::Graph& graph, pickle::NodeId node);

/// The plain tensor of a node; nothing when it is not one; corrupt with the node's offset when it is one that
/// contradicts itself. Sparse, quantised, nested and meta tensors are not plain: `unsupported_kind` names them.
Result<std::optional<TensorView>> as_tensor(const pickle::Graph& graph, pickle::NodeId node);
/// "sparse tensor", "quantized tensor", "DTensor", "ShardedTensor", "meta tensor", ... or empty.
std::string_view unsupported_kind(const pickle::Graph& graph, pickle::NodeId node);

/// The state of a tensor that wraps others (`_rebuild_from_type_v2` of `_rebuild_wrapper_subclass`, below parameters),
/// where its class is called `class_name`; else kNone.
pickle::NodeId wrapper_state(const pickle::Graph& graph, pickle::NodeId node, std::string_view class_name);

/// A dict-like node's entries in order: dict, OrderedDict, defaultdict, Counter, argparse.Namespace, and objects
/// with a dict state. Nothing when it is not one.
std::optional<std::vector<std::pair<pickle::NodeId, pickle::NodeId>>> as_mapping(const pickle::Graph& graph,
                                                                                 pickle::NodeId node);
/// Items of a list, tuple, set, torch.Size, or a set / frozenset call. Nothing when it is not one.
std::optional<std::vector<pickle::NodeId>> as_sequence(const pickle::Graph& graph, pickle::NodeId node);
/// The bytes of a call that makes bytes or a bytearray, in the spellings of protocols 2 and later.
std::optional<std::string> as_bytes(const pickle::Graph& graph, pickle::NodeId node);
/// A member of an enum as early releases of Python 3.11 pickle it (Debian 12 has 3.11.2): by its name, `getattr(ZeroStageEnum, "gradients")`.
struct EnumMember {
  std::string_view class_name;  ///< module and name
  std::string_view name;
};
std::optional<EnumMember> as_enum_member(const pickle::Graph& graph, pickle::NodeId node);
/// An int: integers, enums (`ZeroStageEnum(2)`, and of those by name this one), and bools as 0 and 1.
std::optional<std::int64_t> as_integer(const pickle::Graph& graph, pickle::NodeId node);
std::optional<std::string> as_text(const pickle::Graph& graph, pickle::NodeId node);
/// torch.Size, tuple or list of ints >= 0.
std::optional<Shape> as_shape(const pickle::Graph& graph, pickle::NodeId node);

/// What values expand to: shared ones are counted each time.
struct Expansion {
  std::uint64_t values = 0;
  std::uint64_t text_bytes = 0;  ///< of text and bytes

  static constexpr std::uint64_t most_values = std::uint64_t{4} << 20;
  static constexpr std::uint64_t most_repeated_bytes = std::uint64_t{256}
                                                       << 20;  ///< beyond what the pickle itself holds

  Expansion& operator+=(const Expansion& other) {
    values += other.values;
    text_bytes += other.text_bytes;
    return *this;
  }
};

/// The node as an inert value. `tensor_name` is asked for tensors of any kind and gives their names (or nothing:
/// dropped to None). Shared nodes become shared values; a container that contains itself has an Opaque "..." there. An
/// object that also holds items (a subclass of list or dict) has them in its state: {"state": ..., "items": ...}.
/// refused if it nests deeper than 1000 or expands past the limits of Expansion; corrupt as as_tensor.
///
/// so_far  if not null: what the nodes of this graph that were taken before expanded to, of which many may share all they
///         hold; this one is added to it, and the limits are for all together
Result<ValuePtr> to_value(const pickle::Graph& graph, pickle::NodeId node,
                          const std::function<std::optional<std::string>(pickle::NodeId)>& tensor_name,
                          Expansion* so_far = nullptr);

/// The unknown classes and functions called in the pickle, as "module.name", sorted. The meaning of their calls is
/// unknown: keep the pickle itself.
std::vector<std::string> unknown_classes(const pickle::Graph& graph);

}  // namespace ckpt::torch
