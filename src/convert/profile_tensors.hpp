#pragma once

#include <string>
#include <vector>

#include "convert/apply_profile.hpp"
#include "format/model/pieced_index.hpp"

namespace ckpt {

/// A weight of the other side.
struct MadeTensor {
  std::string name;
  Shape shape{};
  std::vector<TensorPiece> pieces{};  ///< at least one
  bool is_copy = false;               ///< of another one, which has the state of its optimizer
};

/// An error about a tensor, or a setting, of a source at `root`.
Error profile_error(Errc code, const std::string& root, const std::string& name, const std::string& reason,
                    std::string hint);

/// Whether the source has the multi-token prediction layers that the settings say. transformers keeps none of them, and
/// the setting.
bool has_prediction(const Map& map, const naming::Settings& settings, MapRules::Side to);

/// The weights that a profile's rules make of the map's, layer by layer. Marks those that are used, by index.
/// errors  as apply_profile
Result<std::vector<MadeTensor>> profile_tensors(const Map& map, const ProfileUse& use, const std::string& root,
                                                std::vector<bool>& used);

}  // namespace ckpt
