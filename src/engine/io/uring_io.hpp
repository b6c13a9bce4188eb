#pragma once

#include <cstddef>
#include <memory>

#include "engine/io/io.hpp"

namespace ckpt {

/// The real file system by io_uring: one ring; each request is passed to the kernel when it is submitted.
/// `unsupported`, with the reason, if the kernel or the container forbids it.
Result<std::unique_ptr<Io>> open_uring_io(std::size_t queue_depth);

}  // namespace ckpt
