#pragma once

#include <string>

namespace ckpt {

/// The first line of a small file below /proc or /sys; empty if there is none.
std::string first_line(const std::string& path);

/// What the system chose of a line of choices: "madvise" of "always [madvise] never"; the whole line where none is
/// marked.
std::string chosen_word(const std::string& line);

}  // namespace ckpt
