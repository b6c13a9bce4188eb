#include "convert/deepspeed/model_parallel/layer_names.hpp"

#include <algorithm>

#include "convert/deepspeed/model_parallel/sliced_tensors.hpp"

namespace ckpt::deepspeed {

void LayerNames::add(const ModelStates& model) {
  for (const GroupShapes& group : *model.param_shapes) {
    for (const NamedShape& shape : group) {
      shapes_.emplace(shape.name, &shape.shape);
      const std::size_t dot =
          shape.name.starts_with(kTiedModules) ? shape.name.find('.', kTiedModules.size()) : std::string::npos;
      if (dot != std::string::npos) tied_keys_.insert(shape.name.substr(0, dot + 1));
    }
  }
}

std::string LayerNames::prefix_of(const std::string& number, const std::vector<NamedTensor>& tensors) const {
  for (const NamedTensor& entry : tensors) {
    if (shapes_.count(number + entry.name) != 0) return number;
  }
  std::vector<std::string> fitting;
  for (const std::string& key : tied_keys_) {
    const bool fits = !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const NamedTensor& entry) {
      const auto at = shapes_.find(key + entry.name);
      return at != shapes_.end() && *at->second == entry.tensor.type.shape;
    });
    if (fits) fitting.push_back(key);
  }
  return fitting.size() == 1 ? fitting.front() : number;
}

}  // namespace ckpt::deepspeed
