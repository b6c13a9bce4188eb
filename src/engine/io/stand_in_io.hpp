#pragma once

#include <memory>
#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// An Io on which a file seems to hold what another holds: what would be, were it replaced, can be read by whoever
/// reads such a directory, before it is replaced. Only reading is meant: whatever changes a name or a file goes past
/// the stand-in, to what is there.
struct StandIn {
  std::string path{};      ///< seems to be there, and to hold
  std::string bytes_of{};  ///< what this file holds
};

/// `inner` outlives it. Used by one thread, as any Io.
std::unique_ptr<Io> make_stand_in_io(Io& inner, StandIn stand_in);

}  // namespace ckpt
