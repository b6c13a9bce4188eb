#pragma once

#include <cstddef>
#include <memory>

#include "engine/io/io.hpp"

namespace ckpt {

/// The real file system by io_uring: one ring, each request handed to the kernel as it is submitted. `unsupported`
/// with the reason where the kernel or the container forbids it.
Result<std::unique_ptr<Io>> open_uring_io(std::size_t queue_depth);

}  // namespace ckpt
