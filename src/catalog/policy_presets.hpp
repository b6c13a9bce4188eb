#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::catalog {

/// Policy files to start from: `ckpt policy init`.
enum class Preset : std::uint8_t {
  research,    ///< the last 3, the best 2, every 5000 steps
  production,  ///< the last 5, hourly for a day, daily for two weeks, tagged ones
  space,       ///< the last 2 whole, the weights of older ones while there is space
};
/// By value of Preset.
inline constexpr std::array<std::string_view, 3> kPresetNames{"research", "production", "space"};

/// What the checkpoints of a store record.
struct Recorded {
  std::vector<std::string> metrics{};
  std::vector<std::string> tags{};
};

/// The metric that a research policy ranks by: a validation loss before others, then the first; "" if there is none
/// that a policy file can name.
std::string ranking_metric(const std::vector<std::string>& metrics);

/// The text of a policy file, with a comment for each line. A rule on a metric stops prune until the metric is
/// recorded, so without one `best` is a comment.
std::string preset_text(Preset preset, const Recorded& recorded);

}  // namespace ckpt::catalog
