#include "engine/store/step_name.hpp"

#include <array>
#include <charconv>

namespace ckpt {
namespace {

/// DeepSpeed; Megatron; Hugging Face; torchtitan and others; Orbax.
constexpr std::array<std::string_view, 10> kPrefixes{"global_step", "iter_", "checkpoint-", "checkpoint_", "step_",
                                                     "step-",       "step",  "ckpt-",       "ckpt_",       ""};
constexpr std::string_view kLightningStep = "step=";

/// All of `text` as a decimal step_number.
std::optional<std::uint64_t> step_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint64_t> step_in_name(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const auto step = step_number(name.substr(prefix.size()))) return step;
  }
  const std::size_t at = name.rfind(kLightningStep);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kLightningStep.size());
  return step_number(rest.substr(0, rest.find_first_not_of("0123456789")));
}

}  // namespace ckpt
