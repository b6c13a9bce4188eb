#pragma once

#include <atomic>
#include <memory>

#include "engine/io.hpp"

namespace ckpt {

/// An Io that sets `changed` at the first change on disk: until then a command can be stopped anywhere. `changed`
/// outlives it.
std::unique_ptr<Io> make_noted_io(std::unique_ptr<Io> inner, std::atomic<bool>& changed);

}  // namespace ckpt
