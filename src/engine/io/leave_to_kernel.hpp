#pragma once

#include <memory>
#include <utility>

namespace ckpt {

/// After a failed reap: the kernel may use the memory of requests in flight for as long as it likes, so its owner leaks
/// it. It is freed when the process ends. Buffers of a pool have BufferPool::Buffer::leave_to_kernel.
template <class Owner>
void leave_to_kernel(Owner&& memory) {
  static_cast<void>(std::make_unique<Owner>(std::forward<Owner>(memory)).release());
}

}  // namespace ckpt
