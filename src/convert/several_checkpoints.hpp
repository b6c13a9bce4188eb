#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/result.hpp"

/// A directory with several checkpoints is refused: the user must choose one.
namespace ckpt {

struct OneCheckpoint {
  std::string name;  ///< below the directory
  std::optional<std::uint64_t> step{};
  std::uint64_t generation = 0;  ///< of one of ours: orders the saves of a run; else 0
  std::int64_t mtime_ns = 0;
  std::string why{};  ///< how it was recognised; may be empty
};

/// Sorts the newest first: by generation, then by step where all have one, else by the time of their files.
void sort_newest_first(std::vector<OneCheckpoint>& all);

/// `ambiguous`: names them with their steps, newest first, and offers the newest. `all` has at least two.
Error several_checkpoints(const std::string& directory, std::vector<OneCheckpoint> all);

}  // namespace ckpt
