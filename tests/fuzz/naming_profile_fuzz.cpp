#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/naming/model_config.hpp"
#include "format/naming/profile.hpp"
#include "format/naming/segments.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// A profile, and after a zero byte a config.json. A rule's segments have the elements of Megatron-LM's tensor and of those
// of transformers, and the made config.json is JSON.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace naming = ckpt::naming;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto profile = naming::parse_profile(input.substr(0, end), "p", naming::profile_part);
  if (!profile) {
    require(profile.error().code == ckpt::Errc::usage);
    return 0;
  }
  const auto config = ckpt::json::parse(input.substr(std::min(end + 1, input.size())));
  if (!config) return 0;
  const naming::ReadSettings read = naming::from_config(*profile, *config);
  static_cast<void>(naming::compare(*profile, *config, read.settings));
  require(ckpt::json::parse(naming::to_config(*profile, read.settings, "bfloat16")).has_value());
  constexpr std::size_t kMostRules = 64;
  for (std::size_t i = 0; i < std::min(profile->rules.size(), kMostRules); ++i) {
    const auto cutting = naming::cutting_of(profile->rules[i], read.settings);
    if (!cutting) continue;
    std::uint64_t megatron = 0;
    std::uint64_t hf = 0;
    for (const naming::Segment& segment : cutting->segments) {
      require(ckpt::fits(segment.megatron, cutting->megatron));
      require(ckpt::fits(segment.hf, cutting->hf[segment.tensor]));
      megatron += ckpt::volume(segment.megatron.size);
      hf += ckpt::volume(segment.hf.size);
    }
    require(megatron == ckpt::volume(cutting->megatron) && hf == megatron);
  }
  return 0;
}
