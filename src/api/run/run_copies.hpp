#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/store/run_directory.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt {

/// A checkpoint of a run, and its location.
struct RunCheckpoint {
  CheckpointName name{};  ///< in the run directory if it exists there
  std::string id{};       ///< 32 digits; empty where its manifest cannot be read
  std::optional<universal::Run> run{};
  std::vector<std::string> copies{};  ///< paths, the nearest first
};

/// The committed checkpoints of a run, newest first: those of the run's directory and of a local tier (none where
/// `local_directory` is empty), joined by id. A copy with an unreadable manifest is listed separately; opening it gives
/// the reason. Its place in the run's history comes from the second copy of the manifest, if that is readable.
/// `most_read`: how many manifests are read, at most, of each directory: those of the newest that can be read.
Result<std::vector<RunCheckpoint>> list_copies(Io& io, const std::string& run_directory,
                                               const std::string& local_directory, std::size_t most_read);

}  // namespace ckpt
