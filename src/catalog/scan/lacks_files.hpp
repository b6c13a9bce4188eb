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

}  // namespace ckpt::catalog
