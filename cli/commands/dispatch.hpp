#pragma once

#include <string>
#include <vector>

#include "cli/process/launch.hpp"

namespace ckpt::cli {

/// Carries out one command line (without the program's name) and returns the exit code.
int dispatch(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ckpt::cli
