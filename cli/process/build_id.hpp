#pragma once

#include <string>

namespace ckpt::cli {

/// The linker's build id of the running program, in hex; "" where it was linked without one. It names the exact
/// build, as `file` and debuggers print it.
std::string build_id();

}  // namespace ckpt::cli
