// Writing tensors to the store.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/offload/offload_impl.hpp"
#include "format/checked.hpp"

namespace ckpt {

using offload::Lock;
using offload::Part;
using State = Part::State;

Result<> OffloadStore::put(const std::string& name, std::span<const std::byte> bytes) {
  Lock lock(impl_->shared.mutex);
  if (impl_->shared.broken) return fail(*impl_->shared.broken);
  if (impl_->shared.unreported) {
    Error error = *std::exchange(impl_->shared.unreported, std::nullopt);
    return fail(with_hint(std::move(error),
                          "that tensor is still in memory and its write will be retried; nothing was stored"));
  }
  offload::Tensor* old = impl_->find(name);
  const bool fits = impl_->parts_of(bytes.size()) <= impl_->shared.memory.limit();
  auto done = fits ? impl_->put_whole(old, name, bytes, lock) : impl_->put_through(old, name, bytes, lock);
  if (!done) impl_->shared.unreported.reset();  // reported now
  return done;
}

/// All buffers first, so that a put that fails has touched nothing.
Result<> OffloadStore::Impl::put_whole(offload::Tensor* old, const std::string& name, std::span<const std::byte> bytes,
                                       Lock& lock) {
  const std::size_t count = parts_of(bytes.size());
  // The buffers of the old value are reused for the new one. Pinned, they are not evicted while we wait for more.
  std::size_t own = 0;
  if (old != nullptr) {
    for (Part& part : old->parts) {
      // One that is being read may lose its buffer when that read is called off.
      if (!part.buffer || part.state == State::reading || own == count) continue;
      shared.memory.pin(part);
      ++own;
    }
  }
  std::vector<BufferPool::Buffer> buffers;
  while (own + buffers.size() < count) {
    auto buffer = acquire(lock);
    if (!buffer) {
      for (BufferPool::Buffer& each : buffers) shared.memory.give_back(std::move(each));
      for (std::size_t i = 0; old != nullptr && i < old->parts.size(); ++i) {
        old->parts[i].pinned = false;
        shared.memory.update_lists(*old, i);
      }
      return fail(std::move(buffer).error());
    }
    buffers.push_back(std::move(*buffer));
  }

  offload::Tensor& tensor = old != nullptr ? *old : make(name);
  end_transfers(tensor, lock);
  for (Part& part : tensor.parts) {
    if (part.buffer && buffers.size() < count) {
      buffers.push_back(std::exchange(part.buffer, {}));
    }
    shared.memory.drop(part);
  }
  tensor.parts.clear();
  tensor.parts.resize(count);
  tensor.bytes = bytes.size();
  tensor.failure.reset();
  tensor.lost.reset();
  for (std::size_t i = 0; i < count; ++i) {
    tensor.parts[i].buffer = std::move(buffers[i]);
    tensor.parts[i].state = State::filling;
  }
  for (std::size_t i = 0; i < count; ++i) fill(tensor, i, bytes, lock);
  return {};
}

/// More than the memory holds: its first parts leave memory while the last ones are copied in.
Result<> OffloadStore::Impl::put_through(offload::Tensor* old, const std::string& name,
                                         std::span<const std::byte> bytes, Lock& lock) {
  offload::Tensor& tensor = old != nullptr ? *old : make(name);
  end_transfers(tensor, lock);
  for (Part& part : tensor.parts) shared.memory.drop(part);
  tensor.parts.clear();
  tensor.parts.resize(parts_of(bytes.size()));
  tensor.bytes = bytes.size();
  tensor.failure.reset();
  tensor.lost.reset();
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    auto buffer = acquire(lock);
    if (!buffer) {
      Error error = std::move(buffer).error();
      error.message += fmt::format("; nothing is stored under this name now{}",
                                   old != nullptr ? ", not even the earlier value" : "");
      forget(name, lock);
      return fail(std::move(error));
    }
    tensor.parts[i].buffer = std::move(*buffer);
    tensor.parts[i].state = State::filling;
    fill(tensor, i, bytes, lock);
  }
  return {};
}

/// Copies a part in and hands it to the store's thread at once.
void OffloadStore::Impl::fill(offload::Tensor& tensor, std::size_t part, std::span<const std::byte> bytes, Lock& lock) {
  const std::size_t count = part_bytes(tensor, part);
  std::byte* data = tensor.parts[part].buffer.data();
  lock.unlock();
  std::memcpy(data, bytes.data() + part * options.buffer_bytes, count);
  std::memset(data + count, 0, static_cast<std::size_t>(round_up(count, kAlignment)) - count);
  lock.lock();
  shared.memory.use(tensor.parts[part]);
  if (shared.broken) {  // the transfer ended while we copied; the value is complete in memory
    tensor.parts[part].state = State::unwritten;
  } else {
    shared.begin_write(tensor, part);
  }
}

}  // namespace ckpt
