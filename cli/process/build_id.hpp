#pragma once

#include <string>

namespace ckpt::cli {

/// The linker's build id of the running program, in hex; "" if it was linked without one. It names the exact build, as
/// printed by `file` and debuggers.
std::string build_id();

}  // namespace ckpt::cli
