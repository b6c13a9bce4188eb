#pragma once

#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace ckpt {

/// Leaks memory on purpose: a peer, or the communication library, may still write to it. Registered with leak checkers.
template <class T, class Delete>
void leak_to_peers(std::unique_ptr<T, Delete> owned) {
  auto* memory = owned.release();
#if defined(__SANITIZE_ADDRESS__)
  __lsan_ignore_object(memory);
#else
  static_cast<void>(memory);
#endif
}

}  // namespace ckpt
