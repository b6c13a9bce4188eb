#pragma once

#include <atomic>
#include <memory>

#include "engine/io.hpp"

namespace ckpt {

/// An Io that notes the first change on a disk: until `changed` is set a command may be ended anywhere. `changed`
/// outlives it.
std::unique_ptr<Io> make_noted_io(std::unique_ptr<Io> inner, std::atomic<bool>& changed);

}  // namespace ckpt
