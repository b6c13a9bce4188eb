#pragma once

#include <cstddef>
#include <memory>

#include "engine/io/io.hpp"

namespace ckpt {

/// The real file system by a small pool of threads that call pread and pwrite: for kernels and containers without
/// io_uring. The threads start with the first request.
std::unique_ptr<Io> make_thread_io(std::size_t queue_depth);

}  // namespace ckpt
