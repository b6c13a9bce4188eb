#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/deepspeed/files/model_states.hpp"

namespace ckpt::deepspeed {

/// The names that a pipeline's optimizers have for the tensors of its layer files.
class LayerNames {
 public:
  /// Adds the trained parameters of one model-parallel rank, which outlives this.
  void add(const ModelStates& model);

  /// "3." or "tied_modules.embed.": the tied layer of which all tensors have these names and shapes, if there is
  /// exactly one. With several the number stays, and the tied name has no weight.
  ///
  /// number   of the layer, with its dot
  /// tensors  of its file
  std::string prefix_of(const std::string& number, const std::vector<NamedTensor>& tensors) const;

 private:
  std::unordered_map<std::string, const Shape*> shapes_{};
  std::set<std::string> tied_keys_{};  // "tied_modules.embed."
};

}  // namespace ckpt::deepspeed
