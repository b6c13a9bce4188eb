#pragma once

#include <cstddef>

namespace ckpt {

/// Copies bytes to memory that nobody reads soon, past the processor's caches where it can: what lies there is not
/// fetched first, and what others need is not driven out. The two ranges do not overlap.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace ckpt
