#include "convert/deepspeed/writer/expert_division.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/objects.hpp"
#include "convert/deepspeed/stages/experts.hpp"
#include "convert/deepspeed/writer/expert_layout.hpp"
#include "format/model/object_tree.hpp"
#include "format/model/same_value.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {
namespace {

/// What DeepSpeed calls a group of experts, with the number of their ranks.
constexpr std::string_view kExpertGroup = "ep_size_";

std::uint64_t source_ranks(const WriteRequest& request) {
  for (const auto& [name, degree] : request.source->meta.mesh) {
    if (name == "ep") return std::max<std::uint64_t>(degree, 1);
  }
  return 1;
}

/// The experts as the source has them.
class SourceExperts {
 public:
  SourceExperts(const WriteRequest& request, bool universal, TrainingTarget& target)
      : request_(request), universal_(universal), target_(target) {}

  Result<> run() {
    CKPT_CHECK(find_experts());
    for (TargetGroup& group : target_.groups) CKPT_CHECK(settle_experts(group));
    return {};
  }

 private:
  /// The mixture-of-experts layers, in the order of the module, as the source divides them.
  Result<> find_experts() {
    std::vector<std::map<std::uint64_t, std::vector<std::size_t>>> members;  // by expert, of each layer
    for (std::size_t i = 0; i < target_.state.model.size(); ++i) {
      const auto parts = expert_name(target_.state.model[i].name);
      if (!parts) continue;
      const auto [at, is_new] = target_.expert_at.emplace(parts->layer, target_.experts.size());
      if (is_new) {
        target_.experts.push_back({.name = at->first, .number = at->second, .ranks = source_ranks(request_)});
        members.emplace_back();
      }
      members[at->second][parts->number].push_back(i);
    }
    for (ExpertLayer& layer : target_.experts) {
      auto& of_layer = members[static_cast<std::size_t>(layer.number)];
      layer.experts = of_layer.rbegin()->first + 1;
      if (layer.experts != of_layer.size()) return fail(other_experts(layer.name));
      for (auto& [number, entries] : of_layer) layer.members.push_back(std::move(entries));
    }
    if (target_.experts.empty() && request_.options.ep != 0)
      return fail({.code = Errc::usage, .message = request_.target + ": --ep: the source has no experts"});
    if (target_.experts.empty()) return {};
    if (universal_)
      return fail(cannot_hold(request_, "DeepSpeed cannot load a mixture of experts from a universal directory", {},
                              "use --to deepspeed"));
    if (target_.stage == 3)
      return fail(cannot_hold(request_, "DeepSpeed does not support a mixture of experts at ZeRO stage 3", {},
                              "--zero-stage 2    is the nearest"));
    if (!request_.source->module_order)
      return fail(cannot_hold(request_, "the source does not record the order of its mixture-of-experts layers", {},
                              "convert the original DeepSpeed directory"));
    return check_expert_counts();
  }

  /// The files of experts are numbered by layer, as num_experts is.
  Result<> check_expert_counts() const {
    const auto object = std::ranges::find(target_.state.rest, "num_experts", &NamedObject::name);
    const auto* counts = object == target_.state.rest.end() ? nullptr : std::get_if<List>(&object->value.v);
    const bool same =
        counts != nullptr &&
        std::ranges::equal(counts->items, target_.experts, [](const ValuePtr& count, const ExpertLayer& layer) {
          return whole_number(count.get()) == static_cast<std::int64_t>(layer.experts);
        });
    if (same) return {};
    return fail(other_experts(target_.experts.front().name));
  }

  Error other_experts(const std::string& layer) const {
    return cannot_hold(request_, layer + ": the experts in the files do not match num_experts", layer);
  }

  /// Whether a group is one of experts, and over how many ranks the source has them.
  Result<> settle_experts(TargetGroup& group) {
    std::size_t count = 0;
    for (const std::size_t member : group.members)
      count += expert_layer_of(target_, target_.state.model[member].name) != nullptr ? 1U : 0U;
    if (count == 0) return {};
    const std::string& first = target_.state.model[group.members.front()].name;
    if (count != group.members.size())
      return fail(cannot_hold(request_, first + ": its parameter group mixes experts and other parameters", first));
    group.expert_ranks = source_ranks(request_);
    for (const auto& [name, value] : group.options) {
      const auto* text = name == "name" ? text_of(&value) : nullptr;
      if (text == nullptr || !text->starts_with(kExpertGroup)) continue;
      const auto ranks = parse_number<std::uint64_t>(std::string_view(*text).substr(kExpertGroup.size()));
      if (!ranks || *ranks == 0)
        return fail(cannot_hold(request_, first + ": its group is named '" + *text + "', which gives no size", first));
      group.expert_ranks = *ranks;
    }
    return {};
  }

  const WriteRequest& request_;
  const bool universal_;
  TrainingTarget& target_;
};

class ExpertDivision {
 public:
  ExpertDivision(const WriteRequest& request, TrainingTarget& target) : request_(request), target_(target) {}

  /// Gives every group of experts the ranks that are asked for, or the source's.
  Result<> run() {
    std::set<std::uint64_t> degrees;
    for (const TargetGroup& group : target_.groups) {
      if (group.expert_ranks != 0) degrees.insert(group.expert_ranks);
    }
    const std::uint64_t asked = request_.options.ep;
    if (degrees.size() > 1 && asked == 0) return fail(several_sizes());
    if (degrees.size() > 1) CKPT_CHECK(merge_groups());
    if (asked != 0) {
      for (ExpertLayer& layer : target_.experts) layer.ranks = asked;
    }
    for (TargetGroup& group : target_.groups) {
      if (group.expert_ranks != 0) CKPT_CHECK(divide(group, asked != 0 ? asked : group.expert_ranks));
    }
    for (const ExpertLayer& layer : target_.experts) CKPT_CHECK(check_ranks(layer));
    for (TargetGroup& group : target_.groups) CKPT_CHECK(check_size(group));
    return {};
  }

 private:
  std::vector<std::uint64_t> expert_counts() const {
    std::vector<std::uint64_t> out;
    for (const ExpertLayer& layer : target_.experts) out.push_back(layer.experts);
    return out;
  }

  ExpertLayer& layer_of(std::size_t member) {
    return target_.experts[target_.expert_at.find(expert_name(target_.state.model[member].name)->layer)->second];
  }

  /// A group for each size, which DeepSpeed's processes order by the hashes of their names; it loads them by position.
  ///
  /// source  deepspeed/moe/utils.py: split_params_into_different_moe_groups_for_optimizer (a set of strings)
  Error several_sizes() {
    std::map<std::uint64_t, const ExpertLayer*> first;
    for (const TargetGroup& group : target_.groups) {
      if (group.expert_ranks != 0) first.emplace(group.expert_ranks, &layer_of(group.members.front()));
    }
    std::string layers;
    for (const auto& [ranks, layer] : first)
      layers += fmt::format("{}{}: {}", layers.empty() ? "" : ", ", layer->name, ranks);
    return cannot_hold(
        request_,
        fmt::format("layers use different expert-parallel sizes ({}), whose parameter groups DeepSpeed orders "
                    "differently in each process: it would load the state of one layer into another",
                    layers),
        first.begin()->second->name,
        fmt::format("--ep {}    gives all layers one size, for a run that sets it too",
                    nearest_expert_ranks(first.rbegin()->first, target_.dp, expert_counts())));
  }

  /// One size for all layers: one group has what a group for each size had.
  Result<> merge_groups() {
    std::vector<TargetGroup> merged;
    std::vector<std::set<std::uint64_t>> sizes;  // of each, those that it was made of
    for (TargetGroup& group : target_.groups) {
      std::size_t at = 0;
      while (at < merged.size() && !(group.expert_ranks != 0 && has_options_of(merged[at], group))) ++at;
      if (at == merged.size()) {
        sizes.push_back({group.expert_ranks});
        merged.push_back(std::move(group));
        continue;
      }
      const std::string& name = target_.state.model[group.members.front()].name;
      TargetGroup& into = merged[at];
      if (!sizes[at].insert(group.expert_ranks).second)
        return fail(cannot_hold(
            request_, name + ": its parameter group cannot be distinguished from another with the same options", name));
      if (!has_state_of(into, group))
        return fail(cannot_hold(
            request_, name + ": its optimizer state differs from that of layers of another expert-parallel size",
            name));
      into.members.insert(into.members.end(), group.members.begin(), group.members.end());
      into.elements.insert(into.elements.end(), group.elements.begin(), group.elements.end());
    }
    target_.groups = std::move(merged);
    redivided_ = true;
    return {};
  }

  /// Besides the name, which is that of the size.
  static bool has_options_of(const TargetGroup& group, const TargetGroup& other) {
    if (group.expert_ranks == 0) return false;
    return std::ranges::equal(group.options, other.options, [](const auto& a, const auto& b) {
      return a.first == b.first && (a.first == "name" || same_value(a.second, b.second));
    });
  }

  static bool has_state_of(const TargetGroup& group, const TargetGroup& other) {
    const bool same_slots = std::ranges::equal(group.slots, other.slots, [](const GroupSlot& a, const GroupSlot& b) {
      return a.name == b.name && a.dtype == b.dtype;
    });
    if (!same_slots || group.step.has_value() != other.step.has_value()) return false;
    return !group.step || same_value(*group.step, *other.step);
  }

  Result<> divide(TargetGroup& group, std::uint64_t ranks) {
    if (ranks != group.expert_ranks) redivided_ = true;
    group.expert_ranks = ranks;
    for (const std::size_t member : group.members) layer_of(member).ranks = ranks;
    for (auto& [name, value] : group.options) {
      if (name == "name") value.v = std::string(kExpertGroup) + std::to_string(ranks);
    }
    return {};
  }

  Result<> check_ranks(const ExpertLayer& layer) const {
    if (layer.experts % layer.ranks == 0 && target_.dp % layer.ranks == 0) return {};
    const bool experts = layer.experts % layer.ranks != 0;
    return fail(cannot_hold(
        request_,
        fmt::format("{}: {} {} cannot be divided among {} expert-parallel ranks", layer.name,
                    experts ? layer.experts : target_.dp, experts ? "experts" : "data-parallel ranks", layer.ranks),
        layer.name,
        fmt::format("--ep {}    is the nearest", nearest_expert_ranks(layer.ranks, target_.dp, expert_counts()))));
  }

  /// DeepSpeed splits large groups of experts by size: where, depends on how many a rank has.
  Result<> check_size(const TargetGroup& group) {
    if (group.expert_ranks == 0 || !redivided_) return {};
    std::uint64_t elements = 0;
    for (const std::uint64_t one : group.elements) elements += one;
    bool split = elements / group.expert_ranks > kMostExpertElements;
    for (const std::size_t member : group.members) {
      const ExpertName parts = *expert_name(target_.state.model[member].name);
      const std::string parameter = std::string(parts.layer) + std::string(parts.parameter);
      const auto at = group_of_.emplace(parameter, &group).first;
      split = split || at->second != &group;
    }
    if (!split) return {};
    const std::string& first = target_.state.model[group.members.front()].name;
    return fail(cannot_hold(
        request_, first + ": its expert group is so large that DeepSpeed splits it, differently for each --ep", first,
        fmt::format("--ep {}    is that of the source", source_ranks(request_))));
  }

  const WriteRequest& request_;
  TrainingTarget& target_;
  bool redivided_ = false;                                          // over other ranks than in the source
  std::unordered_map<std::string, const TargetGroup*> group_of_{};  // parameters of experts, without their numbers
};

}  // namespace

Result<> find_experts(const WriteRequest& request, bool universal, TrainingTarget& target) {
  return SourceExperts(request, universal, target).run();
}

Result<> divide_experts(const WriteRequest& request, TrainingTarget& target) {
  return ExpertDivision(request, target).run();
}

}  // namespace ckpt::deepspeed
