#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/naming/profile.hpp"
#include "format/naming/settings.hpp"

namespace ckpt::naming {

/// A setting that the other side cannot express, or that has another value there.
struct Difference {
  std::string name;  ///< of the side that was read
  std::string text;
};

struct ReadSettings {
  Settings settings{};
  std::vector<Difference> differences{};
};

/// The settings of a model that config.json describes.
ReadSettings from_config(const Profile& profile, const json::Value& config);
/// The same of arguments of Megatron-LM: they are settings, and the profile says what must hold.
ReadSettings from_arguments(const Profile& profile, Settings arguments);

/// The arguments of the model, with the profile's constants.
Settings to_arguments(const Profile& profile, const Settings& settings);
/// The text of config.json. Keys that the settings lack are left to their defaults.
///
/// dtype   of the weights: "bfloat16"
std::string to_config(const Profile& profile, const Settings& settings, std::string_view dtype);

/// The differences of two sides that describe one model; names are those of config.json.
std::vector<Difference> compare(const Profile& profile, const json::Value& config, const Settings& arguments);

/// The first profile that arguments of Megatron-LM fit; null if there is none.
const Profile* profile_for_arguments(std::span<const Profile> all, const Settings& arguments);
/// That of the model_type or the architecture in config.json; null if there is none.
const Profile* profile_for_config(std::span<const Profile> all, const json::Value& config);

/// Which of the model's layers have experts, by `moe_layer_freq`.
std::vector<bool> expert_layers(const Settings& settings, std::uint64_t layers);

}  // namespace ckpt::naming
