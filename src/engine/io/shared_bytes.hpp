#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/io/io.hpp"

namespace ckpt {

/// What trees that are removed one after the other leave on the disk: a file goes with the last of its names.
class SharedBytes {
 public:
  explicit SharedBytes(Io& io) : io_(io) {}

  /// The bytes of the next tree's files that have other names, in none of the trees so far. A part that cannot be read,
  /// and trees after 20,000 files, do not count as shared.
  std::uint64_t next(const std::string& path);

 private:
  Io& io_;
  std::uint64_t looked_at_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> names_{};  ///< by device and inode: those that went
};

}  // namespace ckpt
