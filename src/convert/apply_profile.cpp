#include "convert/apply_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "convert/profile_tensors.hpp"
#include "format/model/map_rules.hpp"
#include "format/model/pieced_index.hpp"
#include "format/model/slot_name.hpp"
#include "format/model/training_state.hpp"
#include "format/text/name_list.hpp"
#include "format/text/nearest.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

bool is_weight(const Tensor& tensor) {
  return tensor.role == Role::param || tensor.role == Role::buffer;
}

/// A slot of as many elements as its parameter is cut with it; one of a single element ("step") belongs to all parts.
bool is_single(const Tensor& slot) {
  return volume(slot.shape) == 1;
}

class Application {
 public:
  Application(Map& map, const ProfileUse& use, const std::string& root) : map_(map), use_(use), root_(root) {}

  Result<> run() {
    used_.resize(map_.tensors.size());
    name_slots();
    CKPT_TRY(made_, profile_tensors(map_, use_, root_, used_));
    CKPT_CHECK(check_all_used());
    find_slots();
    std::vector<Shape> shapes;
    for (const Tensor& tensor : map_.tensors) shapes.push_back(tensor.shape);
    index_ = std::make_shared<PiecedIndex>(map_.index, std::move(shapes));
    for (MadeTensor& made : made_) CKPT_CHECK(add_weight(made));
    for (const MadeTensor& made : made_)
      if (!made.is_copy) CKPT_CHECK(add_slots(made));
    keep_rest();
    finish();
    return {};
  }

 private:
  tl::unexpected<Error> refused(const std::string& name, const std::string& reason,
                                std::string hint = std::string(kProfileHint)) const {
    return fail(profile_error(Errc::unsupported, root_, name, reason, std::move(hint)));
  }

  Result<> check_all_used() {
    std::vector<std::string> left;
    std::vector<std::string> ignored;
    for (std::size_t t = 0; t < used_.size(); ++t) {
      const Tensor& tensor = map_.tensors[t];
      if (used_[t] || !is_weight(tensor)) continue;
      const auto matches = [&](const std::string& pattern) { return match_stars(tensor.name, pattern).has_value(); };
      (std::ranges::any_of(use_.profile.ignored, matches) ? ignored : left).push_back(tensor.name);
    }
    if (!ignored.empty())
      map_.findings.push_back({.text = "--names: skipped tensors that are not model weights: " + name_list(ignored)});
    if (left.empty()) return {};
    std::vector<std::string> known;
    for (const naming::Rule& rule : use_.profile.rules) {
      const auto& names = use_.to == MapRules::Side::hf ? std::vector{rule.megatron} : rule.hf;
      known.insert(known.end(), names.begin(), names.end());
    }
    std::string text = name_list(left);
    const auto meant = nearest(left.front(), known);
    return refused(left.front(),
                   fmt::format("profile {} has no rule for {}: {}", use_.profile.family,
                               left.size() == 1 ? "this tensor" : fmt::format("{} tensors", left.size()), text),
                   meant ? fmt::format("nearest rule: {}", *meant) : std::string(kProfileHint));
  }

  /// Optimizers that number their parameters: state that belongs to a weight without doubt gets its name.
  void name_slots() {
    const auto is_unnamed = [](const Tensor& tensor) {
      return tensor.role == Role::slot && (tensor.parameter.empty() || parse_number<std::uint64_t>(tensor.parameter));
    };
    if (std::ranges::none_of(map_.tensors, is_unnamed)) return;
    const std::vector<StateItem> items = all_items(map_);
    const TrainingState state =
        training_state({.map = &map_, .items = items, .aliases = map_.aliases, .objects = map_.objects});
    for (const ModelTensor& one : state.model) {
      if (!one.tensor) continue;
      const auto give = [&](std::uint32_t slot, const std::string& name) {
        map_.tensors[slot].parameter = map_.tensors[*one.tensor].name;
        map_.tensors[slot].slot = name;
      };
      if (one.master) give(*one.master, std::string(kMasterSlotName));
      for (const StateSlot& slot : one.slots) give(slot.tensor, slot.name);
      if (const auto* step = std::get_if<std::uint32_t>(&one.step)) give(*step, std::string(kStepSlotName));
    }
  }

  void find_slots() {
    std::unordered_map<std::string_view, std::uint32_t> weights;
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t)
      if (is_weight(map_.tensors[t])) weights.emplace(map_.tensors[t].name, t);
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      const Tensor& slot = map_.tensors[t];
      if (slot.role != Role::slot || slot.parameter.empty()) continue;
      const auto weight = weights.find(slot.parameter);
      if (weight == weights.end() || !used_[weight->second]) continue;
      if (!is_single(slot) && slot.shape != map_.tensors[weight->second].shape) continue;  // flattened
      slots_[weight->second].push_back(t);
    }
  }

  std::uint32_t slot_of(std::uint32_t weight, const std::string& name) const {
    const auto found = slots_.find(weight);
    if (found == slots_.end()) return kNone;
    const auto slot =
        std::ranges::find_if(found->second, [&](std::uint32_t t) { return map_.tensors[t].slot == name; });
    return slot == found->second.end() ? kNone : *slot;
  }

  Result<> add_weight(MadeTensor& made) {
    const Tensor& first = map_.tensors[made.pieces.front().source];
    for (const TensorPiece& piece : made.pieces) {
      const Tensor& part = map_.tensors[piece.source];
      if (part.dtype != first.dtype || is_packed(part.dtype))
        return refused(part.name, fmt::format("dtype is {}, but other parts of {} are {}", dtype_name(part.dtype),
                                              made.name, dtype_name(first.dtype)));
    }
    tensors_.push_back({.name = made.name, .dtype = first.dtype, .shape = made.shape, .role = first.role});
    index_->add(made.shape, made.pieces);
    return {};
  }

  /// The slots that the first part has; the others need them too.
  Result<> add_slots(const MadeTensor& made) {
    const auto found = slots_.find(made.pieces.front().source);
    for (const TensorPiece& piece : made.pieces) {
      if ((found == slots_.end()) != !slots_.contains(piece.source))
        return refused(map_.tensors[piece.source].name,
                       fmt::format("only some parts of {} have optimizer state", made.name));
    }
    if (found == slots_.end()) return {};
    for (const std::uint32_t slot : found->second) CKPT_CHECK(add_slot(made, map_.tensors[slot]));
    return {};
  }

  Result<> add_slot(const MadeTensor& made, const Tensor& slot) {
    std::vector<TensorPiece> pieces = made.pieces;
    for (TensorPiece& piece : pieces) {
      const std::uint32_t own = slot_of(piece.source, slot.slot);
      const std::string& weight = map_.tensors[piece.source].name;
      if (own == kNone)
        return refused(weight, fmt::format("no {}, which other parts of {} have", slot.slot, made.name));
      const Tensor& part = map_.tensors[own];
      if (part.dtype != slot.dtype || is_single(part) != is_single(slot))
        return refused(weight,
                       fmt::format("its {} has another dtype or shape than that of {}", slot.slot, slot.parameter));
      used_[own] = true;
      piece.source = own;
    }
    const bool single = is_single(slot) && volume(made.shape) != 1;
    Tensor tensor = slot;
    tensor.name = slot_name(made.name, slot.slot);
    tensor.path.clear();
    tensor.parameter = made.name;
    if (!single) tensor.shape = made.shape;
    if (single) {
      index_->add(pieces.front().source);
    } else {
      index_->add(tensor.shape, std::move(pieces));
    }
    tensors_.push_back(std::move(tensor));
    return {};
  }

  void keep_rest() {
    std::vector<std::string> left;
    std::vector<std::uint32_t> place(map_.tensors.size(), kNone);
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      if (used_[t]) continue;
      const Tensor& tensor = map_.tensors[t];
      if (tensor.role == Role::slot) left.push_back(tensor.name);
      if (tensor.role != Role::blob) continue;
      place[t] = static_cast<std::uint32_t>(tensors_.size());
      tensors_.push_back(tensor);
      index_->add(t);
    }
    for (Extra& extra : map_.extras) extra.tensor = place[extra.tensor];
    if (left.empty()) return;
    map_.findings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("--names: dropped optimizer state that is not stored per parameter: {}", name_list(left)),
         .skipped = Skipped::training_state});
  }

  void finish() {
    map_.tensors = std::move(tensors_);
    map_.index = std::move(index_);
    map_.aliases.clear();  // a tied output layer is the embedding on both sides
    map_.derived.clear();
    map_.parameter_order.clear();
    map_.whole = nullptr;
    map_.nested = false;
    map_.module_order = false;
  }

  static constexpr std::uint32_t kNone = 0xffffffff;
  Map& map_;
  const ProfileUse& use_;
  const std::string& root_;
  std::vector<bool> used_{};
  std::vector<MadeTensor> made_{};
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> slots_{};  // by the parameter's index
  std::vector<Tensor> tensors_{};
  std::shared_ptr<PiecedIndex> index_{};
};

}  // namespace

Result<> apply_profile(Map& map, const ProfileUse& use, const std::string& root) {
  return Application(map, use, root).run();
}

}  // namespace ckpt
