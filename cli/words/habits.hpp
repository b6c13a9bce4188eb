#pragma once

#include <string_view>

namespace ckpt::cli {

/// The hint for a word that other tools have as a command; empty for any other word.
std::string_view habit_hint(std::string_view word);

}  // namespace ckpt::cli
