#include "convert/megatron/extra_states.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "convert/megatron/weight_rules.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::array<std::string_view, 4> kMembers{".weight", ".bias", ".layer_norm_weight", ".layer_norm_bias"};
constexpr std::array<std::string_view, 2> kWithout{".router", "embeddings"};  // modules that have none
constexpr std::string_view kAttention = ".self_attention.";
constexpr std::string_view kStackedExperts = ".experts.experts.";

/// The module of a weight; "" for one that has no extra state.
std::string_view module_of(std::string_view name) {
  if (!name.starts_with("decoder.") && !name.starts_with(kPredictionLayers)) return {};
  for (const std::string_view member : kMembers) {
    if (!name.ends_with(member)) continue;
    name.remove_suffix(member.size());
    const bool is_without =
        std::ranges::any_of(kWithout, [&](std::string_view ending) { return name.ends_with(ending); });
    return is_without ? std::string_view{} : name;
  }
  return {};
}

constexpr std::size_t kMost = std::size_t{1} << 20;  // a shape may claim any number of layers

class ExtraStates {
 public:
  /// counts  of layers and experts, where they are stacked; else 1
  Result<> add(const std::string& module, const std::vector<std::uint64_t>& counts) {
    if (!known_.insert(module).second || std::ranges::find(counts, 0u) != counts.end()) return {};
    std::vector<std::uint64_t> at(counts.size(), 0);
    for (;;) {
      if (keys_.size() == kMost)
        return fail({.code = Errc::unsupported,
                     .message = fmt::format("{}: too many layers and experts", module),
                     .tensor = module});
      keys_.push_back(fmt::format("{}._extra_state/shard_{}_{}", module, fmt::join(at, "."), fmt::join(counts, ".")));
      std::size_t axis = at.size();
      while (axis > 0 && at[axis - 1] + 1 == counts[axis - 1]) at[--axis] = 0;
      if (axis == 0) return {};
      ++at[axis - 1];
    }
  }

  std::vector<std::string> finish() { return std::move(keys_); }

 private:
  std::unordered_set<std::string> known_{};
  std::vector<std::string> keys_{};
};

}  // namespace

Result<std::vector<std::string>> extra_state_keys(const std::vector<NamedWeight>& weights) {
  ExtraStates out;
  for (const NamedWeight& weight : weights) {
    const std::string_view module = module_of(weight.name);
    if (module.empty()) continue;
    const bool is_stacked = weight.name.starts_with(kLayers) && !weight_of(weight.name, false).layer;
    const bool is_expert = weight.name.find(kStackedExperts) != std::string::npos;
    const auto axes = static_cast<std::size_t>(is_stacked) + static_cast<std::size_t>(is_expert);
    if (weight.shape.size() < axes) continue;
    std::vector<std::uint64_t> counts(weight.shape.begin(), weight.shape.begin() + static_cast<std::ptrdiff_t>(axes));
    if (counts.empty()) counts.push_back(1);
    CKPT_CHECK(out.add(std::string(module), counts));
    const std::size_t attention = weight.name.find(kAttention);
    if (attention == std::string::npos) continue;
    CKPT_CHECK(out.add(weight.name.substr(0, attention + kAttention.size()) + "core_attention", counts));
  }
  return out.finish();
}

}  // namespace ckpt::megatron
