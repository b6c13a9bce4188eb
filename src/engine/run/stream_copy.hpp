#pragma once

#include <cstddef>

namespace ckpt {

/// Copies bytes to memory that is not read soon, with non-temporal stores if possible: the destination is not fetched
/// into the caches, and other data stays there. The two ranges do not overlap.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace ckpt
