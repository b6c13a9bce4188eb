#pragma once

#include <string>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::numpy {

/// One .npy file per tensor: the target itself if it ends in ".npy", which takes exactly one (`usage` otherwise), else
/// files in a directory. Supports Selected::part. Types that NumPy lacks are written as their bits, with a note.
Result<Skeleton> lay_out(const WriteRequest& request);

/// A tensor's name as a file name: letters, digits, '_', '-' and inner dots are kept, other bytes become %XX, which
/// urllib.parse.unquote reverses; names above 180 characters end in '~' and a hash.
std::string file_name(std::string_view name);

}  // namespace ckpt::numpy
