#pragma once

#include <cstdint>
#include <string>

namespace ckpt::cli {

/// How grave a finding of `doctor` is. Only `fail` makes the answer "no": saves there fail, or can be lost.
enum class Health : std::uint8_t { ok, note, warn, fail };

/// One fact that was checked.
struct Diagnosis {
  Health health = Health::ok;
  std::string about;   ///< "io_uring", "file system", ...: the same word for the same check
  std::string text;    ///< the finding, and its consequence
  std::string mend{};  ///< a command, or a sentence, that repairs it; empty where nothing needs to be
};

}  // namespace ckpt::cli
