#pragma once

#include <string>

#include "convert/write_request.hpp"

namespace ckpt {

/// Checks the paths of a layout before its first file is made, whatever its format made them of.
///
/// target  of the conversion, for messages
/// errors  unsupported, with the path: no file can have that name, two have it, or a folder of another file has it
Result<> check_target_paths(const Skeleton& skeleton, const std::string& target);

}  // namespace ckpt
