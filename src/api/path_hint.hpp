#pragma once

#include "format/result.hpp"

namespace ckpt {

/// The error, and where it is that a file does not exist and no hint was given, the path that was probably meant.
Error with_nearest_path(Error error);

}  // namespace ckpt
