#include "convert/megatron/flattened_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/megatron/flat_index.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/model_arguments.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kFlatExperts = ".experts.experts.";
constexpr std::string_view kFlatFirstLayer = ".experts.experts.linear_fc1.weight";

using ShapesByName = std::unordered_map<std::string_view, const Shape*>;  ///< shapes by name

/// The parts that a weight was cut into, as many along each dimension as the state's shape says.
struct Parts {
  Shape count{};
  Shape size{};
};

std::optional<Parts> parts_of(const Shape& state, const Shape& weight) {
  if (state.size() != weight.size() + 1 || volume(weight) == 0) return std::nullopt;
  Parts out;
  for (std::size_t d = 0; d < weight.size(); ++d) {
    if (state[d] == 0 || weight[d] % state[d] != 0) return std::nullopt;
    out.count.push_back(state[d]);
    out.size.push_back(weight[d] / state[d]);
  }
  if (volume(out.size) != state.back()) return std::nullopt;
  return out;
}

/// Whether each chunk lies in one part, and every part can have one: so parts are no more than what is stored.
Result<bool> has_rows_only(const Map& map, std::uint32_t tensor, const Parts& parts) {
  const Shape& shape = map.tensors[tensor].shape;
  std::uint64_t chunks = 0;
  bool is_row = true;
  CKPT_CHECK(map.index->regions(tensor, {0, volume(shape)}, [&](const Chunk& chunk) -> Result<> {
    ++chunks;
    is_row =
        is_row && std::all_of(chunk.box.size.begin(), chunk.box.size.end() - 1, [](std::uint64_t n) { return n == 1; });
    return {};
  }));
  return is_row && volume(parts.count) <= chunks;
}

/// State of weights that GroupedMLP holds transposed: by the run's arguments, or by a first layer whose gate and up halves
/// were cut out of its columns.
bool has_transposed_state(const Map& map, const ShapesByName& weights) {
  const auto args = std::ranges::find(map.objects, kArguments, &NamedObject::name);
  if (args != map.objects.end() && has_transposed_experts(args->value)) return true;
  return std::ranges::any_of(map.tensors, [&](const Tensor& tensor) {
    const auto weight = tensor.role == Role::slot ? weights.find(tensor.parameter) : weights.end();
    if (weight == weights.end() || !tensor.parameter.ends_with(kFlatFirstLayer)) return false;
    const auto parts = parts_of(tensor.shape, *weight->second);
    return parts && parts->count[parts->count.size() - 2] == 1 && parts->count.back() > 1;
  });
}

/// Whether the distributed optimizer saved the state: only it flattens.
bool has_distributed_optimizer(const Map& map) {
  const auto args = std::ranges::find(map.objects, kArguments, &NamedObject::name);
  return args == map.objects.end() || is_set(args->value, "use_distributed_optimizer");
}

void leave_transposed_state(Map& map, const ShapesByName& weights, bool is_whole) {
  NameList left;
  for (Tensor& tensor : map.tensors) {
    const auto weight = tensor.role == Role::slot ? weights.find(tensor.parameter) : weights.end();
    if (weight == weights.end() || tensor.parameter.find(kFlatExperts) == std::string::npos) continue;
    if (!is_whole && tensor.shape.size() != weight->second->size() + 1) continue;
    tensor.parameter.clear();
    left.add(tensor.name);
  }
  if (left.count() != 0)
    map.findings.push_back({.text = fmt::format("the optimizer's state of GroupedMLP's experts is that of transposed "
                                                "weights and kept as it is: {}",
                                                left.text())});
}

std::vector<FlatPiece> pieces_of(std::uint32_t tensor, const Parts& parts) {
  std::vector<FlatPiece> out;
  const std::uint64_t elements = volume(parts.size);
  Shape part(parts.count.size());
  for (std::uint64_t i = 0; i < volume(parts.count); ++i) {
    FlatPiece& piece = out.emplace_back(FlatPiece{.source = tensor, .begin = i * elements, .to = {part, parts.size}});
    for (std::size_t d = 0; d < part.size(); ++d) piece.to.offset[d] *= parts.size[d];
    for (std::size_t d = part.size(); d-- > 0;) {  // the next part, row-major
      if (++part[d] < parts.count[d]) break;
      part[d] = 0;
    }
  }
  return out;
}

}  // namespace

Result<> unflatten_state(Map& map, bool is_whole) {
  ShapesByName weights;
  for (const Tensor& tensor : map.tensors)
    if (tensor.role == Role::param) weights.emplace(tensor.name, &tensor.shape);
  if (has_distributed_optimizer(map) && has_transposed_state(map, weights))
    leave_transposed_state(map, weights, is_whole);
  auto index = std::make_shared<FlatIndex>(map.index);
  std::vector<std::pair<std::uint32_t, Shape>> shapes;  // of the state that was flattened
  for (std::uint32_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    const auto weight = tensor.role == Role::slot ? weights.find(tensor.parameter) : weights.end();
    const auto parts = weight == weights.end() ? std::nullopt : parts_of(tensor.shape, *weight->second);
    bool is_flat = false;
    if (parts) {
      CKPT_TRY(is_flat, has_rows_only(map, t, *parts));
    }
    if (!is_flat) {
      index->add(t);
      continue;
    }
    index->add(*weight->second, pieces_of(t, *parts), tensor.shape);
    shapes.emplace_back(t, *weight->second);
  }
  if (shapes.empty()) return {};
  for (auto& [tensor, shape] : shapes) map.tensors[tensor].shape = std::move(shape);
  map.index = std::move(index);
  return {};
}

}  // namespace ckpt::megatron
