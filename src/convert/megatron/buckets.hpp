#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// Gives the state that the distributed optimizer stored in buckets (dp_reshardable) to its weights: the map gets slots of
/// the whole weights, in their shapes, and loses the flat tensors of each model-parallel rank. Where the weights lie in the
/// buckets follows from the run's arguments, and is compared with the cuts that the run stored, which are at every weight's
/// begin.
///
/// map      of torch_dist, with the run's arguments as objects
/// returns  false, and changes nothing: there are no buckets, or they do not lie as the arguments say
Result<bool> assign_buckets(Map& map);

/// Where the rest of that optimizer's state dict belongs in the state that all ranks have in common. Each model-parallel
/// rank stores it in objects of its own: of the first rank those with the parameter groups ("optimizer") and the loss scale
/// ("grad_scaler"). Nothing for another key.
std::optional<Path> bucket_object_path(std::string_view key);

/// Such objects that are items of data files.
struct BucketItem {
  Path path;                 ///< in the state that all ranks have in common; with a number where there are several
  std::uint32_t tensor = 0;  ///< of the map
};
std::vector<BucketItem> bucket_items(const Map& map);

}  // namespace ckpt::megatron
