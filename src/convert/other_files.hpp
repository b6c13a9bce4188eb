#pragma once

#include <optional>
#include <string>

#include "convert/place.hpp"

/// Files that are no checkpoints and that users mistake for one: archives, web pages, pointers, text.
namespace ckpt {

struct OtherFile {
  std::string what;               ///< "a gzip archive, not a checkpoint"
  std::string hint{};             ///< the step that leads to a checkpoint; empty if there is none
  Errc code = Errc::unsupported;  ///< incomplete: the file itself was not downloaded
  bool may_be_part = false;       ///< files of this kind also belong to checkpoints
};

/// By the first bytes and the name; nothing for other files.
std::optional<OtherFile> other_file(const Place& place);

}  // namespace ckpt
