#include "convert/deepspeed/writer/number_slots.hpp"

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ckpt::deepspeed {

void read_number_slots(const WriteRequest& request, TrainingState& state) {
  const std::vector<Tensor>& tensors = request.source->tensors;
  std::unordered_set<std::string> numbers;
  for (const ModelTensor& entry : state.model) {
    for (const StateSlot& slot : entry.slots) {
      const bool is_number = tensors[slot.tensor].shape.empty() && request.scalars.contains(slot.tensor);
      if (is_number && !entry.shape.empty()) numbers.insert(slot.name);
    }
  }
  if (numbers.empty()) return;
  for (ModelTensor& entry : state.model) {
    std::vector<StateSlot> left;
    for (StateSlot& slot : entry.slots) {
      const auto read = request.scalars.find(slot.tensor);
      if (read == request.scalars.end() || !numbers.contains(slot.name)) {
        left.push_back(std::move(slot));
        continue;
      }
      Value value;
      value.v = read->second;
      entry.values.emplace_back(std::move(slot.name), std::move(value));
    }
    entry.slots = std::move(left);
  }
}

}  // namespace ckpt::deepspeed
