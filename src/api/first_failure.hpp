#pragma once

#include <functional>
#include <string>

namespace ckpt {

/// Where a trainer gives no log: the first save that fails is told on stderr, once a store, so that a training run does
/// not go on for days without a checkpoint and without a word. The one place below cli that prints.
///
/// is_told_here  whether this rank is the one that tells
std::function<void(const std::string& text)> first_failure_on_stderr(std::function<bool()> is_told_here);

}  // namespace ckpt
