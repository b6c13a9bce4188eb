// Reading tensors from the store.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/offload/offload_impl.hpp"
#include "format/checked.hpp"

namespace ckpt {

using offload::Lock;
using offload::Part;
using offload::Task;
using State = Part::State;

Result<> OffloadStore::get(const std::string& name, std::span<std::byte> out) {
  Lock lock(impl_->shared.mutex);
  offload::Tensor* tensor = impl_->find(name);
  if (tensor == nullptr) return fail(offload::no_such_tensor("get", name));
  if (out.size() != tensor->bytes) {
    const std::string reason = fmt::format("{} bytes requested, but the tensor has {}", out.size(), tensor->bytes);
    return fail({.code = Errc::usage, .message = "offload store: get: " + reason, .tensor = name});
  }
  std::erase_if(impl_->shared.wanted, [&](const offload::Shared::Wanted& each) { return each.tensor == tensor; });
  impl_->count_get(*tensor);
  impl_->hold(*tensor, true);  // bytes still to be copied are evicted last, after those still to be read
  std::size_t next_read = 0;
  for (std::size_t i = 0; i < tensor->parts.size(); ++i) {
    auto copied = impl_->copy_out(*tensor, i, next_read, out, lock);
    if (copied) continue;
    impl_->hold(*tensor, false);
    impl_->shared.begin_wanted();
    return copied;
  }
  impl_->shared.begin_wanted();  // buffers already copied may be evicted for it
  return {};
}

void OffloadStore::Impl::count_get(const offload::Tensor& tensor) {
  std::uint64_t absent = 0;
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    if (tensor.parts[i].state == State::absent) absent += part_bytes(tensor, i);
  }
  ++(absent == 0 ? counts.hits : counts.misses);
  counts.hit_bytes += tensor.bytes - absent;
  counts.miss_bytes += absent;
}

/// Marks the parts of a tensor in memory as read ahead, or clears the mark.
void OffloadStore::Impl::hold(offload::Tensor& tensor, bool ahead) {
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    if (tensor.parts[i].state == State::absent || tensor.parts[i].ahead == ahead) continue;
    tensor.parts[i].ahead = ahead;
    if (ahead) shared.memory.use(tensor.parts[i]);
    shared.memory.update_lists(tensor, i);
  }
}

/// Makes sure that a part is being read, and those after it as far as there are buffers without waiting.
Result<> OffloadStore::Impl::read_on(offload::Tensor& tensor, std::size_t part, std::size_t& next_read, Lock& lock) {
  if (tensor.parts[part].state == State::absent) {
    if (tensor.lost) return fail(*tensor.lost);
    auto acquired = acquire(lock);
    auto reserve = acquired || shared.broken ? std::nullopt : shared.memory.take_reserve();
    if (!acquired && !reserve) return fail(std::move(acquired).error());
    BufferPool::Buffer buffer = acquired ? std::move(*acquired) : std::move(*reserve);
    tensor.parts[part].ahead = true;
    shared.memory.use(tensor.parts[part]);
    shared.begin_read(tensor, part, std::move(buffer), true);
  }
  for (next_read = std::max(next_read, part + 1); next_read < tensor.parts.size(); ++next_read) {
    Part& next = tensor.parts[next_read];
    if (next.state != State::absent || tensor.lost || shared.broken) continue;
    auto buffer = shared.memory.take(false);
    if (!buffer) return {};
    next.ahead = true;
    shared.memory.use(next);
    shared.begin_read(tensor, next_read, std::move(*buffer), true);
  }
  return {};
}

Result<> OffloadStore::Impl::copy_out(offload::Tensor& tensor, std::size_t index, std::size_t& next_read,
                                      std::span<std::byte> out, Lock& lock) {
  CKPT_CHECK(read_on(tensor, index, next_read, lock));
  Part& part = tensor.parts[index];
  if (part.state == State::reading) {
    // A read ahead that still waits behind writes goes first now.
    const auto queued = std::find_if(shared.queue.begin(), shared.queue.end(), [&](const Task& task) {
      return task.tensor == &tensor && task.part == index && !task.write;
    });
    if (queued != shared.queue.end()) {
      shared.urgent.push_front(*queued);
      shared.queue.erase(queued);
    }
  }
  shared.changed.wait(lock, [&] { return part.state != State::reading; });
  if (part.state == State::absent) return fail(tensor.failure.value_or(Error{.message = "offload store: get"}));

  shared.memory.pin(part);
  lock.unlock();
  std::memcpy(out.data() + index * options.buffer_bytes, part.buffer.data(), part_bytes(tensor, index));
  lock.lock();
  part.pinned = false;
  part.ahead = false;
  shared.memory.use(part);
  shared.memory.update_lists(tensor, index);
  if (shared.memory.reserve_is_out() && part.state == State::clean) shared.memory.drop(part);
  return {};
}

}  // namespace ckpt
