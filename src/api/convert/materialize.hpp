#pragma once

#include <cstdint>
#include <string>

#include "convert/open_source.hpp"

/// Copying the tensors that a virtual checkpoint refers to.
namespace ckpt {

/// Whether the virtual checkpoint itself is the target.
enum class InPlace : std::uint8_t {
  no,
  yes,   ///< it is replaced
  done,  ///< it was: a process that was killed left the old one next to it
};

/// errors  usage: the source is not virtual; or it would be replaced, and is a checkpoint of a run, or has marks
Result<InPlace> check_in_place(Io& io, const Source& source, const std::string& target);

}  // namespace ckpt
