#pragma once

#include <string>

namespace ckpt {

/// The first line of a small file below /proc or /sys; empty if it does not exist.
std::string first_line(const std::string& path);

/// The selected value of a choice: "madvise" of "always [madvise] never"; the whole line if none is
/// marked.
std::string chosen_word(const std::string& line);

}  // namespace ckpt
