#pragma once

#include <functional>

#include "cli/report/say.hpp"

namespace ckpt::cli {

/// Runs a command that only shows something: once, or with --watch again and again, redrawn in place on a terminal,
/// until Ctrl-C (exit code 0) or a failure.
Answer watched(Context& context, const std::function<Answer()>& once);

}  // namespace ckpt::cli
