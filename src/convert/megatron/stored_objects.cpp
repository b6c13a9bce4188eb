#include "convert/megatron/stored_objects.hpp"

#include <string>
#include <utility>

#include "format/torch/flatten_state.hpp"

namespace ckpt::megatron {

void add_objects(const Path& path, const ValuePtr& value, Map& map) {
  for (torch::FlatValue& leaf : torch::flatten_state(path, value)) {
    std::string name = dotted(leaf.path);
    const bool is_plain = splits_to(name, leaf.path);
    map.objects.push_back(
        {.name = std::move(name), .path = is_plain ? Path{} : std::move(leaf.path), .value = *leaf.value});
  }
}

}  // namespace ckpt::megatron
