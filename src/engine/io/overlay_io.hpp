#pragma once

#include <memory>
#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// An Io that presents one file with the content of another, so that a replacement can be read
/// and verified before it is made. For reading only: changes of names or files go to the real
/// files.
struct StandIn {
  std::string path{};      ///< seems to be there, and to hold
  std::string bytes_of{};  ///< the content of this file
};

/// `inner` outlives it. Used by one thread, as any Io.
std::unique_ptr<Io> make_overlay_io(Io& inner, StandIn overlay);

}  // namespace ckpt
