#include "convert/deepspeed/model_parallel/pipeline_stages.hpp"

#include <algorithm>
#include <utility>

#include "format/checked.hpp"

namespace ckpt::deepspeed {
namespace {

/// Pairs of tied layers are tried up to this many layers: their number grows with the square.
constexpr std::size_t kMostLayersForPairs = 512;
/// Stages tried in total: layers of equal sizes can be divided in very many ways.
constexpr std::uint64_t kMostSteps = 100'000;
constexpr std::size_t kMostStages = 4096;  // each is a level of recursion

/// Elements in a stage's optimizer; nothing if the shape of a member is unknown.
std::optional<std::uint64_t> elements_of(const std::vector<UnnamedGroup>& groups) {
  std::uint64_t sum = 0;
  const auto add = [&](std::uint64_t more) { return !__builtin_add_overflow(sum, more, &sum); };
  for (const UnnamedGroup& group : groups) {
    if (group.flat_elements) {
      if (!add(*group.flat_elements)) return std::nullopt;
      continue;
    }
    for (const auto& shape : group.shapes) {
      if (!shape || !add(volume(*shape))) return std::nullopt;
    }
  }
  return sum;
}

class Division {
 public:
  Division(const std::vector<LayerShapes>& layers, const std::vector<std::vector<UnnamedGroup>>& stages)
      : layers_(layers), stages_(stages) {}

  /// False if the elements of a stage or of the layers cannot be counted.
  bool count() {
    ends_.push_back(0);
    for (const LayerShapes& layer : layers_) {
      std::uint64_t elements = ends_.back();
      for (const Shape& shape : layer.shapes) {
        if (__builtin_add_overflow(elements, volume(shape), &elements)) return false;
      }
      ends_.push_back(elements);
    }
    for (const auto& groups : stages_) {
      const auto elements = elements_of(groups);
      if (!elements) return false;
      wanted_.push_back(*elements);
    }
    return true;
  }

  /// Too many divisions to try them all.
  bool gave_up() const { return steps_ > kMostSteps; }

  /// Adds every division in which exactly these layers are tied; `found` stays small, as two are already too many.
  void try_tied(const std::vector<std::size_t>& tied, std::vector<StageModules>& found) {
    tied_ = &tied;
    found_ = &found;
    modules_.assign(stages_.size(), {});
    divide(0, 0);
  }

 private:
  void divide(std::size_t stage, std::size_t begin) {
    if (found_->size() > 1 || ++steps_ > kMostSteps) return;
    if (stage == stages_.size()) {
      if (begin == layers_.size() && std::ranges::find(*found_, modules_) == found_->end()) found_->push_back(modules_);
      return;
    }
    const std::size_t choices = std::size_t{1} << tied_->size();
    for (std::size_t choice = 0; choice < choices; ++choice) {
      std::vector<std::size_t> borrowed;
      std::uint64_t elements = 0;
      for (std::size_t i = 0; i < tied_->size(); ++i) {
        if ((choice >> i & 1) == 0) continue;
        borrowed.push_back((*tied_)[i]);
        elements += ends_[(*tied_)[i] + 1] - ends_[(*tied_)[i]];
      }
      if (elements > wanted_[stage]) continue;
      const std::uint64_t end_elements = ends_[begin] + (wanted_[stage] - elements);
      const auto at = std::lower_bound(ends_.begin() + static_cast<std::ptrdiff_t>(begin), ends_.end(), end_elements);
      if (at == ends_.end() || *at != end_elements) continue;
      const auto end = static_cast<std::size_t>(at - ends_.begin());
      const bool inside = std::ranges::any_of(borrowed, [&](std::size_t l) { return l >= begin && l < end; });
      if (!inside) take(stage, begin, end, std::move(borrowed));
    }
  }

  /// The stage holds layers [begin, end) and shares the borrowed ones.
  void take(std::size_t stage, std::size_t begin, std::size_t end, std::vector<std::size_t> borrowed) {
    std::vector<std::size_t> first = borrowed;
    for (const std::size_t layer : *tied_) {
      if (layer >= begin && layer < end) first.push_back(layer);
    }
    std::ranges::sort(first);
    // Tied layers are in the order in which the stage reaches them, which is in no file.
    do {
      std::vector<StageParameter> order;
      const auto add = [&](std::size_t layer) {
        for (std::size_t t = 0; t < layers_[layer].shapes.size(); ++t) order.push_back({layer, t});
      };
      for (const std::size_t layer : first) add(layer);
      for (std::size_t layer = begin; layer < end; ++layer) {
        if (std::ranges::find(first, layer) == first.end()) add(layer);
      }
      if (!fits(stages_[stage], order)) continue;
      modules_[stage] = std::move(order);
      divide(stage + 1, end);
    } while (!borrowed.empty() && std::ranges::next_permutation(first).found);
  }

  bool fits(const std::vector<UnnamedGroup>& groups, const std::vector<StageParameter>& order) const {
    std::vector<Shape> members;
    for (const UnnamedGroup& group : groups) {
      if (group.flat_elements) return true;  // the elements fit, and that is all that is known
      for (const auto& shape : group.shapes) members.push_back(*shape);
    }
    std::vector<Shape> held;
    for (const auto& [layer, tensor] : order) held.push_back(layers_[layer].shapes[tensor]);
    if (groups.size() > 1) {  // which member of the module is in which group is the matching's business
      std::ranges::sort(members);
      std::ranges::sort(held);
    }
    return members == held;
  }

  const std::vector<LayerShapes>& layers_;
  const std::vector<std::vector<UnnamedGroup>>& stages_;
  std::vector<std::uint64_t> ends_{};  // elements of all layers before each, and of all
  std::vector<std::uint64_t> wanted_{};
  const std::vector<std::size_t>* tied_ = nullptr;
  std::vector<StageModules>* found_ = nullptr;
  std::uint64_t steps_ = 0;
  StageModules modules_{};
};

}  // namespace

std::optional<StageModules> assign_layers(const std::vector<LayerShapes>& layers,
                                          const std::vector<std::vector<UnnamedGroup>>& stages) {
  Division division(layers, stages);
  if (stages.size() > kMostStages || !division.count()) return std::nullopt;
  std::vector<StageModules> found;
  const auto verdict = [&]() {
    return found.size() == 1 && !division.gave_up() ? std::optional(std::move(found.front())) : std::nullopt;
  };
  const auto may_go_on = [&] { return found.size() < 2 && !division.gave_up(); };
  // The fewest ties that explain the optimizers: with more, layers of equal shapes could change places.
  division.try_tied({}, found);
  if (!found.empty()) return verdict();
  for (std::size_t i = 0; i < layers.size() && may_go_on(); ++i) division.try_tied({i}, found);
  if (!found.empty() || layers.size() > kMostLayersForPairs) return verdict();
  for (std::size_t i = 0; i < layers.size() && may_go_on(); ++i) {
    for (std::size_t j = i + 1; j < layers.size() && may_go_on(); ++j) division.try_tied({i, j}, found);
  }
  return verdict();
}

}  // namespace ckpt::deepspeed
