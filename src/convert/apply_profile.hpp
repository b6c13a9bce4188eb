#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"
#include "format/naming/profile.hpp"
#include "format/naming/settings.hpp"

namespace ckpt {

struct ProfileUse {
  const naming::Profile& profile;
  const naming::Settings& settings;  ///< of the model
  MapRules::Side to = MapRules::Side::hf;
  std::uint64_t vocab_multiple = 1;  ///< to Megatron-LM: rows of the embedding are padded to a multiple of this
};

inline constexpr std::string_view kProfileHint = "see 'ckpt help profiles'; --map FILE adds a profile of your own";

/// Gives the map the tensors of the other side: renamed, cut, joined, transposed and stacked, each slot of the optimizer
/// as its parameter. Layers that are alike are stacked in Megatron-LM's names, and experts always, as in torch_dist.
/// Blobs and objects stay as they are; slots of parameters that are not known are left out, which is a finding. Padding
/// is left out, or repeats the last row.
///
/// errors  unsupported: a tensor that no rule names, or a rule without its tensor; a part whose dtype, or whose optimizer
///         state, is not that of the others; corrupt: a shape that contradicts the settings
Result<> apply_profile(Map& map, const ProfileUse& use, const std::string& root);

}  // namespace ckpt
