#include "convert/deepspeed/writer/expert_division.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/deepspeed/stages/experts.hpp"
#include "convert/deepspeed/writer/expert_layout.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::deepspeed {
namespace {

/// What DeepSpeed calls a group of experts, with the number of their ranks.
constexpr std::string_view kExpertGroup = "ep_size_";

class ExpertDivision {
 public:
  ExpertDivision(const WriteRequest& request, bool universal, TrainingTarget& target)
      : request_(request), universal_(universal), target_(target) {}

  Result<> run() {
    CKPT_CHECK(find_experts());
    for (TargetGroup& group : target_.groups) CKPT_CHECK(settle_experts(group));
    return divide_all();
  }

 private:
  std::uint64_t source_ranks() const {
    for (const auto& [name, degree] : request_.source->meta.mesh) {
      if (name == "ep") return std::max<std::uint64_t>(degree, 1);
    }
    return 1;
  }

  /// The mixture-of-experts layers, in the order of the module, as the source divides them.
  Result<> find_experts() {
    for (const ModelTensor& entry : target_.state.model) {
      const auto parts = expert_name(entry.name);
      if (!parts) continue;
      auto layer = std::ranges::find(target_.experts, parts->layer, &ExpertLayer::name);
      if (layer == target_.experts.end()) {
        const std::uint64_t number = target_.experts.size();
        const std::uint64_t ranks = source_ranks();
        layer = target_.experts.insert(layer, {.name = std::string(parts->layer), .number = number, .ranks = ranks});
      }
      layer->experts = std::max(layer->experts, parts->number + 1);
    }
    if (target_.experts.empty() && request_.options.ep != 0)
      return fail({.code = Errc::usage, .message = request_.target + ": convert: --ep: the source has no experts"});
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
    return fail(cannot_hold(request_,
                            target_.experts.front().name + ": the experts in the files do not match num_experts",
                            target_.experts.front().name));
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
    group.expert_ranks = source_ranks();
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

  /// Gives every group of experts the ranks that are asked for, or the source's.
  Result<> divide_all() {
    std::set<std::uint64_t> degrees;
    for (const TargetGroup& group : target_.groups) {
      if (group.expert_ranks != 0) degrees.insert(group.expert_ranks);
    }
    const std::uint64_t asked = request_.options.ep;
    if (asked != 0 && degrees.size() > 1)
      return fail(
          cannot_hold(request_,
                      fmt::format("layers use different expert-parallel sizes ({} and {}), but --ep sets only one",
                                  *degrees.begin(), *degrees.rbegin()),
                      {}, "omit --ep: each layer keeps its size"));
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

  Result<> divide(TargetGroup& group, std::uint64_t ranks) {
    if (ranks != group.expert_ranks) redivided_ = true;
    group.expert_ranks = ranks;
    for (const std::size_t member : group.members) {
      const auto parts = expert_name(target_.state.model[member].name);
      std::ranges::find(target_.experts, parts->layer, &ExpertLayer::name)->ranks = ranks;
    }
    for (auto& [name, value] : group.options) {
      if (name == "name") value.v = std::string(kExpertGroup) + std::to_string(ranks);
    }
    return {};
  }

  Result<> check_ranks(const ExpertLayer& layer) const {
    if (layer.experts % layer.ranks == 0 && target_.dp % layer.ranks == 0) return {};
    std::vector<std::uint64_t> counts;
    for (const ExpertLayer& other : target_.experts) counts.push_back(other.experts);
    const bool experts = layer.experts % layer.ranks != 0;
    return fail(cannot_hold(
        request_,
        fmt::format("{}: {} {} cannot be divided among {} expert-parallel ranks", layer.name,
                    experts ? layer.experts : target_.dp, experts ? "experts" : "data-parallel ranks", layer.ranks),
        layer.name, fmt::format("--ep {}    is the nearest", nearest_expert_ranks(layer.ranks, target_.dp, counts))));
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
        fmt::format("--ep {}    is that of the source", source_ranks())));
  }

  const WriteRequest& request_;
  const bool universal_;
  TrainingTarget& target_;
  bool redivided_ = false;                                          // over other ranks than in the source
  std::unordered_map<std::string, const TargetGroup*> group_of_{};  // parameters of experts, without their numbers
};

}  // namespace

Result<> divide_experts(const WriteRequest& request, bool universal, TrainingTarget& target) {
  return ExpertDivision(request, universal, target).run();
}

}  // namespace ckpt::deepspeed
