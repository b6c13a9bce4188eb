#include "engine/store/step_name.hpp"

#include <array>

#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

/// DeepSpeed; Megatron; Hugging Face; torchtitan and others; Orbax.
constexpr std::array<std::string_view, 10> kPrefixes{"global_step", "iter_", "checkpoint-", "checkpoint_", "step_",
                                                     "step-",       "step",  "ckpt-",       "ckpt_",       ""};
constexpr std::string_view kLightningStep = "step=";

}  // namespace

std::optional<std::uint64_t> step_in_name(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const auto step = parse_number<std::uint64_t>(name.substr(prefix.size()))) return step;
  }
  const std::size_t at = name.rfind(kLightningStep);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(at + kLightningStep.size());
  return take_number<std::uint64_t>(rest);
}

}  // namespace ckpt
