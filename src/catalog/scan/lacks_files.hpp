#pragma once

#include <string_view>

#include "catalog/scan/entry.hpp"

namespace ckpt::catalog {

/// How the reason of one that is corrupt begins where files of it are missing.
inline constexpr std::string_view kLacksFiles = "incomplete: ";

/// Whether its defect is that files are missing: verify calls it incomplete.
inline bool lacks_files(const Entry& entry) {
  return entry.checkpoint.state == State::corrupt && entry.reason.starts_with(kLacksFiles);
}

/// The word for its state in lists: "incomplete" where files of it are missing, else state_word.
inline std::string_view listed_state(const Entry& entry) {
  return lacks_files(entry) ? "incomplete" : state_word(entry.checkpoint);
}

}  // namespace ckpt::catalog
