#include "convert/gated_halves.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/model/pieced_index.hpp"
#include "format/model/slot_name.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kLayer = ".linear_fc1.";
constexpr std::string_view kGate = "_w";
constexpr std::string_view kUp = "_v";

/// The two halves of a weight, or of its state in one slot.
struct Halves {
  std::optional<std::uint32_t> gate{};
  std::optional<std::uint32_t> up{};
};
using ByWeightAndSlot = std::map<std::pair<std::string, std::string>, Halves>;  // the weight itself has no slot

ByWeightAndSlot find_halves(const Map& map) {
  ByWeightAndSlot out;
  for (std::uint32_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    if (tensor.role != Role::param && tensor.role != Role::slot) continue;
    const std::string& weight = tensor.role == Role::slot ? tensor.parameter : tensor.name;
    const bool is_gate = weight.ends_with(kGate);
    if (weight.find(kLayer) == std::string::npos || (!is_gate && !weight.ends_with(kUp))) continue;
    Halves& halves = out[{weight.substr(0, weight.size() - kGate.size()), tensor.slot}];
    (is_gate ? halves.gate : halves.up) = t;
  }
  return out;
}

bool fit(const Map& map, const Halves& halves) {
  if (!halves.gate || !halves.up) return false;
  const Tensor& gate = map.tensors[*halves.gate];
  const Tensor& up = map.tensors[*halves.up];
  return gate.shape == up.shape && gate.dtype == up.dtype && !gate.shape.empty();
}

/// The dimension of the rows: the last but one of a weight, the last of a bias.
std::size_t rows_of(const std::string& weight, const Shape& shape) {
  return weight.ends_with(".bias") || shape.size() < 2 ? shape.size() - 1 : shape.size() - 2;
}

TensorPiece half(std::uint32_t tensor, const Shape& shape, std::size_t rows, std::uint64_t begin) {
  TensorPiece out{.source = tensor, .from = Box::whole(shape), .to = Box::whole(shape)};
  out.to.offset[rows] = begin;
  for (std::size_t d = 0; d < shape.size(); ++d) out.axes.push_back(static_cast<std::int8_t>(d));
  return out;
}

}  // namespace

void join_gated_halves(Map& map) {
  const ByWeightAndSlot all = find_halves(map);
  if (all.empty() || !map.derived.empty()) return;
  std::unordered_map<std::uint32_t, const ByWeightAndSlot::value_type*> by_gate;
  std::unordered_set<std::uint32_t> ups;
  for (const auto& one : all) {
    const auto weight = all.find({one.first.first, ""});
    if (weight == all.end() || !fit(map, weight->second) || !fit(map, one.second)) continue;
    by_gate.emplace(*one.second.gate, &one);
    ups.insert(*one.second.up);
  }
  if (by_gate.empty()) return;
  std::vector<Shape> shapes;
  for (const Tensor& tensor : map.tensors) shapes.push_back(tensor.shape);
  auto index = std::make_shared<PiecedIndex>(map.index, shapes);
  std::vector<Tensor> tensors;
  for (std::uint32_t t = 0; t < map.tensors.size(); ++t) {
    if (ups.contains(t)) continue;
    Tensor tensor = std::move(map.tensors[t]);
    const auto joined = by_gate.find(t);
    if (joined == by_gate.end()) {
      index->add(t);
    } else {
      const auto& [name, halves] = *joined->second;
      const auto& [weight, slot] = name;
      const std::size_t rows = rows_of(weight, shapes[t]);
      tensor.name = slot.empty() ? weight : slot_name(weight, slot);
      tensor.path.clear();
      if (!slot.empty()) tensor.parameter = weight;
      tensor.shape[rows] *= 2;
      index->add(tensor.shape, {half(t, shapes[t], rows, 0), half(*halves.up, shapes[t], rows, shapes[t][rows])});
    }
    tensors.push_back(std::move(tensor));
  }
  map.tensors = std::move(tensors);
  map.index = std::move(index);
}

}  // namespace ckpt
