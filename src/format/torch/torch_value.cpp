#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "format/torch/torch_object.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

constexpr std::size_t kDeepest = 1000;

// Classes and functions whose calls are understood, or lose nothing as {global, arguments, state}.
constexpr std::array<std::string_view, 47> kKnown{
    "__builtin__ bytearray",
    "__builtin__ bytes",
    "__builtin__ complex",
    "__builtin__ frozenset",
    "__builtin__ range",
    "__builtin__ set",
    "__builtin__ slice",
    "__builtin__ xrange",
    "_codecs encode",
    "argparse Namespace",
    "builtins bytearray",
    "builtins bytes",
    "builtins complex",
    "builtins frozenset",
    "builtins range",
    "builtins set",
    "builtins slice",
    "collections Counter",
    "collections OrderedDict",
    "collections defaultdict",
    "numpy dtype",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
    "pathlib Path",
    "pathlib PosixPath",
    "pathlib PurePosixPath",
    "pathlib._local PosixPath",
    "torch Size",
    "torch device",
    "torch._tensor _rebuild_from_type",
    "torch._tensor _rebuild_from_type_v2",
    "torch._utils _rebuild_device_tensor_from_cpu_tensor",
    "torch._utils _rebuild_device_tensor_from_numpy",
    "torch._utils _rebuild_meta_tensor_no_storage",
    "torch._utils _rebuild_nested_tensor",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._utils _rebuild_qtensor",
    "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch.nn.parameter Buffer",
    "torch.nn.parameter Parameter",
    "torch.serialization _get_layout",
};
static_assert(std::is_sorted(kKnown.begin(), kKnown.end()));

std::string dotted_global(std::string_view module_and_name) {
  std::string name(module_and_name);
  if (const std::size_t space = name.find(' '); space != std::string::npos) name[space] = '.';
  return name;
}

// Bytes that Python wrote as text of the characters 0 to 255; nothing if others occur.
std::optional<std::string> latin1(std::string_view utf8) {
  std::string bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead < 0x80) {
      bytes.push_back(utf8[i]);
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < utf8.size()) {
      bytes.push_back(static_cast<char>((lead & 3u) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3fu)));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace

std::optional<std::string> as_bytes(const Graph& graph, NodeId node) {
  const std::string_view name = graph.callee_name(node);
  const bool is_encode = name == "_codecs encode";
  const bool is_class = name == "builtins bytearray" || name == "__builtin__ bytearray" || name == "builtins bytes" ||
                        name == "__builtin__ bytes";
  if (!is_encode && !is_class) return std::nullopt;
  const std::span<const NodeId> arguments = graph.items(graph.arguments(node));
  if (arguments.empty() && is_class) return std::string();
  if (arguments.empty() || arguments.size() > 2) return std::nullopt;
  if (graph.kind(arguments[0]) == Kind::bytes && arguments.size() == 1) return std::string(graph.text(arguments[0]));
  if (is_class && graph.callee_name(arguments[0]) == "_codecs encode") return as_bytes(graph, arguments[0]);
  if (graph.kind(arguments[0]) != Kind::text || arguments.size() != 2) return std::nullopt;
  const std::string_view encoding = graph.text(arguments[1]);
  if (encoding != "latin1" && encoding != "latin-1") return std::nullopt;
  return latin1(graph.text(arguments[0]));
}

namespace {

enum class ValueForm : std::uint8_t { leaf, sequence, mapping, opaque };

// A node whose parts are being turned into values.
struct Frame {
  NodeId node = kNone;
  ValueForm form = ValueForm::leaf;
  std::vector<NodeId> parts{};
  std::vector<ValuePtr> values{};
  Expansion volume{.values = 1};
};

class Converter {
 public:
  Converter(const Graph& graph, const std::function<std::optional<std::string>(NodeId)>& tensor_name)
      : graph_(graph), tensor_name_(tensor_name) {}

  Result<ValuePtr> convert(NodeId root, Expansion& so_far) {
    CKPT_CHECK(enter(root));
    while (!path_.empty()) {
      Frame& top = path_.back();
      if (top.values.size() == top.parts.size()) {
        finish(top);
        path_.pop_back();
        continue;
      }
      const NodeId part = top.parts[top.values.size()];
      if (part == kNone) {
        top.values.push_back(nullptr);
      } else if (const auto done = done_.find(part); done != done_.end()) {
        const bool is_own_part = done->second.value == nullptr;  // it contains itself
        top.volume += is_own_part ? Expansion{.values = 1} : done->second.volume;
        CKPT_CHECK(check(part, top.volume));
        top.values.push_back(is_own_part ? itself_ : done->second.value);
      } else {
        CKPT_CHECK(enter(part));
      }
    }
    const Done& done = done_.at(root);
    so_far += done.volume;
    CKPT_CHECK(check(root, so_far));
    return done.value;
  }

 private:
  /// Stands for a value inside itself.
  const ValuePtr itself_ = std::make_shared<Value>(Value{Opaque{.global = "..."}});

  struct Done {
    ValuePtr value;  // null while on the path
    Expansion volume{.values = 1};
  };

  tl::unexpected<Error> refuse(NodeId node, std::string_view why) const {
    return fail({.code = Errc::refused, .message = "object: " + std::string(why), .offset = graph_.offset(node)});
  }

  Result<> check(NodeId node, const Expansion& volume) const {
    if (volume.values > Expansion::most_values) return refuse(node, "it expands to more than 4 million values");
    if (volume.text_bytes > graph_.text_bytes() + Expansion::most_repeated_bytes) {
      return refuse(node, "it expands to more than 256 MiB of repeated text");
    }
    return {};
  }

  // Turns a leaf into its value at once, or puts the node on the path.
  Result<> enter(NodeId node) {
    switch (graph_.kind(node)) {
      case Kind::none:
        return leaf(node, None{});
      case Kind::boolean:
        return leaf(node, graph_.boolean(node));
      case Kind::integer:
        return integer(node, graph_.integer(node));
      case Kind::big_integer:
        return leaf(node, BigInt{std::string(graph_.text(node))});
      case Kind::real:
        return leaf(node, graph_.real(node));
      case Kind::text:
        return leaf(node, std::string(graph_.text(node)));
      case Kind::bytes:
        return leaf(node, Bytes{std::string(graph_.text(node))});
      case Kind::global:
        return leaf(node, Opaque{.global = dotted_global(graph_.text(node))});
      case Kind::list:
      case Kind::tuple:
      case Kind::set:
        return open(node, ValueForm::sequence, graph_.items(node));
      case Kind::dict:
        return open(node, ValueForm::mapping, graph_.items(node));
      case Kind::persistent:
        return tensor(node);
      case Kind::call:
        return enter_call(node);
    }
    return {};
  }

  Result<> enter_call(NodeId node) {
    CKPT_TRY(const std::optional<TensorView> view, as_tensor(graph_, node));
    if (view || !unsupported_kind(graph_, node).empty()) return tensor(node);
    if (auto bytes = as_bytes(graph_, node)) return leaf(node, Bytes{std::move(*bytes)});
    if (const auto items = as_sequence(graph_, node)) return open(node, ValueForm::sequence, *items);
    const std::string_view name = graph_.callee_name(node);
    if (name == "collections OrderedDict" || name == "collections defaultdict" || name == "collections Counter") {
      std::vector<NodeId> items{graph_.state(node), name == "collections defaultdict" ? first_argument(node) : kNone};
      for (const auto& [key, value] : as_mapping(graph_, node).value_or(std::vector<std::pair<NodeId, NodeId>>{})) {
        items.push_back(key);
        items.push_back(value);
      }
      return open(node, ValueForm::mapping, items);
    }
    std::vector<NodeId> parts{graph_.arguments(node), graph_.state(node)};
    const std::span<const NodeId> items = graph_.items(node);
    parts.insert(parts.end(), items.begin(), items.end());
    return open(node, ValueForm::opaque, parts);
  }

  NodeId first_argument(NodeId call) const {
    const std::span<const NodeId> arguments = graph_.items(graph_.arguments(call));
    return arguments.empty() ? kNone : arguments.front();
  }

  Result<> tensor(NodeId node) {
    auto name = tensor_name_(node);
    if (!name) return leaf(node, None{});
    TensorRef tensor{.name = std::move(*name)};
    const std::string_view callee = graph_.callee_name(node);
    const std::span<const NodeId> arguments = graph_.items(graph_.arguments(node));
    tensor.is_parameter = callee.starts_with("torch._utils _rebuild_parameter");
    const std::size_t at = tensor.is_parameter ? 1 : 4;  // of requires_grad; _rebuild_tensor has none
    tensor.requires_grad = arguments.size() > at && graph_.boolean(arguments[at]);
    return leaf(node, std::move(tensor));
  }

  template <class T>
  Result<> leaf(NodeId node, T value) {
    Expansion volume{.values = 1, .text_bytes = graph_.text(node).size()};
    if constexpr (std::is_same_v<T, Bytes>) volume.text_bytes = value.data.size();
    auto shared = std::make_shared<Value>();
    shared->v = std::move(value);
    done_[node] = {.value = std::move(shared), .volume = volume};
    return {};
  }

  // Small ones are the same value everywhere, so that lists of them that many files repeat compare fast.
  Result<> integer(NodeId node, std::int64_t number) {
    static const std::array<ValuePtr, 256> small = [] {
      std::array<ValuePtr, 256> made;
      for (std::size_t i = 0; i < made.size(); ++i) made[i] = share({static_cast<std::int64_t>(i)});
      return made;
    }();
    if (number < 0 || number >= static_cast<std::int64_t>(small.size())) return leaf(node, number);
    done_[node] = {.value = small[static_cast<std::size_t>(number)]};
    return {};
  }

  Result<> open(NodeId node, ValueForm form, std::span<const NodeId> parts) {
    if (path_.size() >= kDeepest) return refuse(node, "values nest deeper than 1000");
    CKPT_CHECK(check(node, {.values = parts.size()}));
    done_[node] = {};
    path_.push_back({.node = node, .form = form, .parts = {parts.begin(), parts.end()}});
    path_.back().volume.text_bytes = graph_.callee_name(node).size();
    path_.back().values.reserve(parts.size());
    return {};
  }

  static Dict pairs(std::span<ValuePtr> values) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) dict.items.emplace_back(values[i], values[i + 1]);
    return dict;
  }

  /// parts: of a call its state and a factory come before the keys and values.
  Dict mapping(Frame& frame) const {
    const std::string_view name = graph_.callee_name(frame.node);
    if (name.empty()) return pairs(frame.values);
    Dict dict = pairs(std::span(frame.values).subspan(2));
    dict.kind = name == "collections Counter"       ? Dict::Kind::counter
                : name == "collections defaultdict" ? Dict::Kind::with_default
                                                    : Dict::Kind::ordered;
    dict.attributes = std::move(frame.values[0]);
    dict.factory = std::move(frame.values[1]);
    return dict;
  }

  static ValuePtr share(Value value) { return std::make_shared<Value>(std::move(value)); }

  void finish(Frame& frame) {
    auto value = std::make_shared<Value>();
    switch (frame.form) {
      case ValueForm::leaf:
        break;
      case ValueForm::sequence:
        value->v = List{.kind = list_kind(frame.node),
                        .items = std::move(frame.values),
                        .is_special = graph_.callee_name(frame.node) == "torch Size" ||
                                      graph_.callee_name(frame.node).ends_with(" frozenset")};
        break;
      case ValueForm::mapping:
        value->v = mapping(frame);
        break;
      case ValueForm::opaque:
        value->v = opaque(frame);
        break;
    }
    done_[frame.node] = {.value = std::move(value), .volume = frame.volume};
  }

  List::Kind list_kind(NodeId node) const {
    switch (graph_.kind(node)) {
      case Kind::list:
        return List::Kind::list;
      case Kind::tuple:
        return List::Kind::tuple;
      case Kind::set:
        return List::Kind::set;
      default:
        return graph_.callee_name(node) == "torch Size" ? List::Kind::tuple : List::Kind::set;
    }
  }

  // parts: arguments, state, then items.
  Opaque opaque(Frame& frame) const {
    Opaque object{.global = dotted_global(graph_.callee_name(frame.node)),
                  .args = std::move(frame.values[0]),
                  .state = std::move(frame.values[1]),
                  .is_new = graph_.is_new_object(frame.node)};
    if (object.global.empty()) object.global = "(computed)";
    const std::span<ValuePtr> items = std::span(frame.values).subspan(2);
    if (items.empty()) return object;
    Value held;
    if (graph_.has_pairs(frame.node)) {
      held.v = pairs(items);
    } else {
      held.v = List{.kind = List::Kind::list, .items = {items.begin(), items.end()}};
    }
    Dict both;
    if (object.state != nullptr) both.items.emplace_back(share({std::string("state")}), std::move(object.state));
    both.items.emplace_back(share({std::string("items")}), share(std::move(held)));
    object.state = share({std::move(both)});
    object.has_items = true;
    return object;
  }

  const Graph& graph_;
  const std::function<std::optional<std::string>(NodeId)>& tensor_name_;
  std::vector<Frame> path_;
  std::unordered_map<NodeId, Done> done_;
};

}  // namespace

Result<ValuePtr> to_value(const Graph& graph, NodeId node,
                          const std::function<std::optional<std::string>(NodeId)>& tensor_name, Expansion* so_far) {
  Expansion own;
  return Converter(graph, tensor_name).convert(node, so_far == nullptr ? own : *so_far);
}

std::vector<std::string> unknown_classes(const Graph& graph) {
  std::vector<std::string> names;
  std::unordered_set<NodeId> seen;
  for (std::size_t id = 0; id < graph.node_count(); ++id) {
    const auto node = static_cast<NodeId>(id);
    if (graph.kind(node) != Kind::call) continue;
    if (const auto member = as_enum_member(graph, node)) {
      if (seen.insert(graph.items(graph.arguments(node))[0]).second) names.push_back(dotted_global(member->class_name));
      continue;
    }
    if (!seen.insert(graph.callee(node)).second) continue;
    const std::string_view name = graph.callee_name(node);
    if (name.empty()) {
      names.emplace_back("(computed)");
    } else if (!std::binary_search(kKnown.begin(), kKnown.end(), name)) {
      names.push_back(dotted_global(name));
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace ckpt::torch
