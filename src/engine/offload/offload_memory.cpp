#include "engine/offload/offload_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckpt::offload {

std::optional<BufferPool::Buffer> Memory::take(bool demand) {
  if (buffers_ < limit()) return take_reserve();
  if (!used_.empty()) return give_up(used_.begin());
  if (demand && !ahead_.empty()) return give_up(std::prev(ahead_.end()));
  return std::nullopt;
}

std::optional<BufferPool::Buffer> Memory::take_reserve() {
  auto buffer = pool_.try_acquire();
  if (buffer) peak_buffers_ = std::max(peak_buffers_, ++buffers_);
  return buffer;
}

BufferPool::Buffer Memory::give_up(std::list<std::pair<Tensor*, std::size_t>>::iterator victim) {
  Part& part = victim->first->parts[victim->second];
  unlist(part);
  part.state = Part::State::absent;
  part.ahead = false;
  return std::exchange(part.buffer, {});
}

void Memory::update_lists(Tensor& tensor, std::size_t index) {
  Part& part = tensor.parts[index];
  unlist(part);
  if (part.state != Part::State::clean || part.pinned) return;
  auto& list = part.ahead ? ahead_ : used_;
  // Transfers end in about the order of use, so few entries are checked.
  auto after = list.end();
  for (; after != list.begin(); --after) {
    const auto& [other, other_index] = *std::prev(after);
    if (other->parts[other_index].last_use <= part.last_use) break;
  }
  part.place_ = list.insert(after, {&tensor, index});
  part.listed_ = part.ahead ? Part::Listed::ahead : Part::Listed::used;
}

void Memory::pin(Part& part) {
  unlist(part);
  part.pinned = true;
}

void Memory::drop(Part& part) {
  unlist(part);
  part.state = Part::State::absent;
  part.ahead = false;
  part.pinned = false;
  if (part.buffer) give_back(std::exchange(part.buffer, {}));
}

void Memory::give_back(BufferPool::Buffer buffer) {
  buffer.reset();
  --buffers_;
}

void Memory::unlist(Part& part) {
  if (part.listed_ == Part::Listed::used) used_.erase(part.place_);
  if (part.listed_ == Part::Listed::ahead) ahead_.erase(part.place_);
  part.listed_ = Part::Listed::no;
}

}  // namespace ckpt::offload
