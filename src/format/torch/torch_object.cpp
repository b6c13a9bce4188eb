#include "format/torch/torch_object.hpp"

#include <algorithm>
#include <array>

#include "format/checked.hpp"

// Foreign rules: torch/_utils.py (_rebuild_*), torch/_tensor.py (__reduce_ex__, _rebuild_from_type_v2),
// torch/serialization.py (persistent_id, _get_layout).

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

struct ElementType {
  std::string_view name;
  unsigned bytes;
};

constexpr std::array<std::pair<std::string_view, ElementType>, 17> kStorageClasses{{
    {"FloatStorage", {"float32", 4}},
    {"DoubleStorage", {"float64", 8}},
    {"HalfStorage", {"float16", 2}},
    {"BFloat16Storage", {"bfloat16", 2}},
    {"LongStorage", {"int64", 8}},
    {"IntStorage", {"int32", 4}},
    {"ShortStorage", {"int16", 2}},
    {"CharStorage", {"int8", 1}},
    {"ByteStorage", {"uint8", 1}},
    {"BoolStorage", {"bool", 1}},
    {"ComplexFloatStorage", {"complex64", 8}},
    {"ComplexDoubleStorage", {"complex128", 16}},
    {"QInt8Storage", {"qint8", 1}},
    {"QUInt8Storage", {"quint8", 1}},
    {"QInt32Storage", {"qint32", 4}},
    {"QUInt4x2Storage", {"quint4x2", 1}},
    {"QUInt2x4Storage", {"quint2x4", 1}},
}};

constexpr std::array<ElementType, 28> kElementTypes{{
    {"float32", 4},         {"float64", 8},
    {"float16", 2},         {"bfloat16", 2},
    {"int64", 8},           {"int32", 4},
    {"int16", 2},           {"int8", 1},
    {"uint8", 1},           {"bool", 1},
    {"uint16", 2},          {"uint32", 4},
    {"uint64", 8},          {"complex32", 4},
    {"complex64", 8},       {"complex128", 16},
    {"float8_e4m3fn", 1},   {"float8_e5m2", 1},
    {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},  {"float4_e2m1fn_x2", 1},
    {"bits8", 1},           {"bits16", 2},
    {"bits1x8", 1},         {"bits2x4", 1},
    {"bits4x2", 1},         {"qint8", 1},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kOtherTensors{{
    {"torch._utils _rebuild_sparse_tensor", "sparse tensor"},
    {"torch._utils _rebuild_sparse_csr_tensor", "sparse tensor"},
    {"torch._utils _rebuild_qtensor", "quantized tensor"},
    {"torch._utils _rebuild_nested_tensor", "nested tensor"},
    {"torch._utils _rebuild_meta_tensor_no_storage", "meta tensor"},
    {"torch._utils _rebuild_wrapper_subclass", "wrapper tensor"},
    {"torch._utils _rebuild_device_tensor_from_numpy", "device tensor"},
    {"torch._utils _rebuild_device_tensor_from_cpu_tensor", "device tensor"},
    {"torch._utils _rebuild_xla_tensor", "device tensor"},
    {"torch._utils _rebuild_mlc_tensor", "device tensor"},
    {"torch.distributed._shard.sharded_tensor.api ShardedTensor", "ShardedTensor"},
    {"torch.storage TypedStorage", "bare storage"},
    {"torch.storage _load_from_bytes", "bare storage"},
}};

tl::unexpected<Error> broken(const Graph& graph, NodeId node, std::string_view why) {
  return fail({.code = Errc::corrupt, .message = "tensor: " + std::string(why), .offset = graph.offset(node)});
}

// Arguments of a call, or nothing.
std::span<const NodeId> arguments_of(const Graph& graph, NodeId arguments) {
  return graph.kind(arguments) == Kind::tuple ? graph.items(arguments) : std::span<const NodeId>{};
}

// The function that actually makes a tensor, below parameters and the wrapper for types and attributes.
struct Rebuild {
  std::string_view function;
  std::string_view type;  // class of the outermost _rebuild_from_type_v2, or empty
  NodeId arguments = kNone;
  NodeId attributes = kNone;
  bool has_attributes = false;
};

constexpr std::array<std::string_view, 4> kPlainTensorClasses{
    "torch Tensor", "torch._tensor Tensor", "torch.nn.parameter Buffer", "torch.nn.parameter Parameter"};

/// Records the state of one layer of a call, besides the tensor: None, a dict, or a pair with slots.
void take_attributes(const Graph& graph, NodeId state, Rebuild& rebuild) {
  if (state == kNone || graph.kind(state) == Kind::none) return;
  if (rebuild.attributes == kNone) rebuild.attributes = state;
  const auto entries = as_mapping(graph, state);
  // FSDP1 marks tensors of a full state dict, and leaves the mark there.
  const auto says_something = [&](const auto& entry) { return as_text(graph, entry.first) != "_has_been_cloned"; };
  rebuild.has_attributes = rebuild.has_attributes || !entries || std::ranges::any_of(*entries, says_something);
}

Rebuild resolve(const Graph& graph, NodeId node) {
  Rebuild rebuild{.function = graph.callee_name(node), .arguments = graph.arguments(node)};
  for (;;) {  // ends: arguments are older than their call, and nesting is bounded by the parser
    const std::span<const NodeId> arguments = arguments_of(graph, rebuild.arguments);
    if (rebuild.function == "torch._tensor _rebuild_from_type_v2" ||
        rebuild.function == "torch._tensor _rebuild_from_type") {
      if (arguments.size() != 4 || graph.kind(arguments[0]) != Kind::global) return rebuild;
      if (rebuild.type.empty() && graph.kind(arguments[1]) == Kind::global) rebuild.type = graph.text(arguments[1]);
      if (std::ranges::find(kPlainTensorClasses, graph.text(arguments[1])) == kPlainTensorClasses.end())
        rebuild.has_attributes = true;
      take_attributes(graph, arguments[3], rebuild);
      rebuild.function = graph.text(arguments[0]);
      rebuild.arguments = arguments[2];
      continue;
    }
    const bool is_parameter = rebuild.function == "torch._utils _rebuild_parameter" ||
                              rebuild.function == "torch._utils _rebuild_parameter_with_state" ||
                              rebuild.function == "torch.nn.parameter Parameter" ||
                              rebuild.function == "torch.nn.parameter Buffer";
    if (!is_parameter || arguments.empty() || graph.kind(arguments[0]) != Kind::call) return rebuild;
    if (rebuild.function == "torch._utils _rebuild_parameter_with_state" && arguments.size() > 3)
      take_attributes(graph, arguments[3], rebuild);
    rebuild.function = graph.callee_name(arguments[0]);
    rebuild.arguments = graph.arguments(arguments[0]);
  }
}

}  // namespace

Result<Storage> as_storage(const Graph& graph, NodeId node) {
  const std::span<const NodeId> id = arguments_of(graph, graph.arguments(node));
  if (graph.kind(node) != Kind::persistent || id.size() < 5 || graph.text(id[0]) != "storage" ||
      graph.kind(id[1]) != Kind::global || graph.kind(id[2]) != Kind::text || graph.kind(id[4]) != Kind::integer) {
    return broken(graph, node, "its storage has an invalid description");
  }
  const std::int64_t count = graph.integer(id[4]);
  if (count < 0) return broken(graph, node, "its storage has " + std::to_string(count) + " elements");
  const std::string_view type = graph.text(id[1]);
  const std::string_view name = type.substr(type.find(' ') + 1);
  Storage storage{.key = std::string(graph.text(id[2]))};
  if (name != "UntypedStorage") {
    const auto* found = std::find_if(kStorageClasses.begin(), kStorageClasses.end(),
                                     [&](const auto& candidate) { return candidate.first == name; });
    if (found == kStorageClasses.end() || !(type.starts_with("torch ") || type.starts_with("torch."))) {
      return broken(graph, node, "unknown storage class " + std::string(type));
    }
    storage.element = found->second.name;
    storage.element_bytes = found->second.bytes;
  }
  if (id.size() > 5 && graph.kind(id[5]) != Kind::none) {
    return fail({.code = Errc::unsupported,
                 .message = "tensor: its storage is a view of another one",
                 .offset = graph.offset(node)});
  }
  CKPT_TRY(storage.bytes, checked_mul(static_cast<std::uint64_t>(count), storage.element_bytes));
  return storage;
}

namespace {

Result<std::vector<std::int64_t>> read_sizes(const Graph& graph, NodeId node) {
  const auto items = as_sequence(graph, node);
  if (!items) return broken(graph, node, "its shape or strides are not a tuple");
  std::vector<std::int64_t> sizes;
  for (const NodeId item : *items) {
    if (graph.kind(item) != Kind::integer || graph.integer(item) < 0) {
      return broken(graph, node, "its shape or strides are not non-negative numbers");
    }
    sizes.push_back(graph.integer(item));
  }
  return sizes;
}

// corrupt: the view reaches past its storage.
Result<> check_bounds(const Graph& graph, NodeId node, const TensorView& view) {
  CKPT_TRY(const std::uint64_t volume, checked_volume(view.shape));
  CKPT_TRY([[maybe_unused]] const std::uint64_t bytes, checked_mul(volume, view.element_bytes));
  if (volume == 0) return {};
  std::uint64_t last = view.storage_offset;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    CKPT_TRY(const std::uint64_t reach, checked_mul(view.shape[d] - 1, static_cast<std::uint64_t>(view.strides[d])));
    CKPT_TRY(last, checked_add(last, reach));
  }
  const std::uint64_t count = view.storage_bytes / view.element_bytes;
  if (last < count) return {};
  return broken(graph, node,
                "its last element is at " + std::to_string(last) + ", but its storage has " + std::to_string(count));
}

// True if the metadata argument says that values must be conjugated or negated on reading.
bool has_math_bits(const Graph& graph, NodeId metadata) {
  return graph.boolean(graph.find(metadata, "conj")) || graph.boolean(graph.find(metadata, "neg"));
}

enum class Form : std::uint8_t { other, v1, v2, v3 };

Form form_of(std::string_view function) {
  if (function == "torch._utils _rebuild_tensor_v2") return Form::v2;
  if (function == "torch._utils _rebuild_tensor_v3") return Form::v3;
  return function == "torch._utils _rebuild_tensor" ? Form::v1 : Form::other;
}

// The metadata argument of v2 and v3, or kNone.
NodeId metadata_of(Form form, std::span<const NodeId> arguments) {
  const std::size_t at = form == Form::v3 ? 7 : 6;
  return form != Form::v1 && arguments.size() > at ? arguments[at] : kNone;
}

}  // namespace

Result<std::optional<TensorView>> as_tensor(const Graph& graph, NodeId node) {
  if (graph.kind(node) != Kind::call || !unsupported_kind(graph, node).empty()) return std::nullopt;
  const Rebuild rebuild = resolve(graph, node);
  const Form form = form_of(rebuild.function);
  if (form == Form::other) return std::nullopt;
  const std::span<const NodeId> arguments = arguments_of(graph, rebuild.arguments);
  const std::size_t least = form == Form::v3 ? 7 : (form == Form::v2 ? 6 : 4);
  if (arguments.size() < least) return broken(graph, node, "too few arguments");

  CKPT_TRY(Storage storage, as_storage(graph, arguments[0]));
  TensorView view{.storage_key = std::move(storage.key),
                  .dtype_name = std::string(storage.element),
                  .storage_bytes = storage.bytes,
                  .element_bytes = storage.element_bytes,
                  .attributes = rebuild.attributes,
                  .has_attributes = rebuild.has_attributes,
                  .untyped = storage.element.empty()};
  if (form == Form::v3) {
    const std::string_view dtype = graph.kind(arguments[6]) == Kind::global ? graph.text(arguments[6]) : "";
    const auto* found = std::find_if(kElementTypes.begin(), kElementTypes.end(), [&](const ElementType& candidate) {
      return dtype.starts_with("torch ") && dtype.substr(6) == candidate.name;
    });
    if (found == kElementTypes.end()) return broken(graph, node, "unknown dtype '" + std::string(dtype) + "'");
    view.dtype_name = found->name;
    view.element_bytes = found->bytes;
  }
  if (view.dtype_name.empty()) return broken(graph, node, "an untyped storage without a dtype");

  if (graph.kind(arguments[1]) != Kind::integer || graph.integer(arguments[1]) < 0) {
    return broken(graph, node, "its storage offset is not a non-negative number");
  }
  view.storage_offset = static_cast<std::uint64_t>(graph.integer(arguments[1]));
  CKPT_TRY(const std::vector<std::int64_t> shape, read_sizes(graph, arguments[2]));
  CKPT_TRY(view.strides, read_sizes(graph, arguments[3]));
  view.shape.assign(shape.begin(), shape.end());
  if (view.shape.size() != view.strides.size()) return broken(graph, node, "its shape and strides differ in length");
  CKPT_CHECK(check_bounds(graph, node, view));
  return view;
}

NodeId wrapper_state(const Graph& graph, NodeId node, std::string_view class_name) {
  if (graph.kind(node) != Kind::call) return kNone;
  const Rebuild rebuild = resolve(graph, node);
  if (rebuild.function != "torch._utils _rebuild_wrapper_subclass") return kNone;
  return rebuild.type.substr(rebuild.type.rfind(' ') + 1) == class_name ? rebuild.attributes : kNone;
}

std::string_view unsupported_kind(const Graph& graph, NodeId node) {
  if (graph.kind(node) == Kind::persistent) return "bare storage";
  if (graph.kind(node) != Kind::call) return {};
  const Rebuild rebuild = resolve(graph, node);
  if (const Form form = form_of(rebuild.function); form != Form::other) {
    const std::span<const NodeId> arguments = arguments_of(graph, rebuild.arguments);
    return has_math_bits(graph, metadata_of(form, arguments)) ? "conjugated or negated view" : std::string_view{};
  }
  const auto* found = std::find_if(kOtherTensors.begin(), kOtherTensors.end(),
                                   [&](const auto& candidate) { return candidate.first == rebuild.function; });
  if (found == kOtherTensors.end()) return {};
  if (rebuild.type.ends_with(" ShardedTensor")) return "ShardedTensor";
  return rebuild.type.ends_with(" DTensor") ? "DTensor" : found->second;
}

}  // namespace ckpt::torch
