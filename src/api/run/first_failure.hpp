#pragma once

#include <functional>
#include <string>

namespace ckpt {

/// Reporter for trainers that set no log: prints the first failed save of each run to stderr, so that a training run
/// cannot go on for days without a checkpoint unnoticed. The only code below cli that prints, besides exit_report.
///
/// is_reported_here  whether this rank prints
std::function<void(const std::string& text)> first_failure_on_stderr(std::function<bool()> is_reported_here);

}  // namespace ckpt
