#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/publish.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"

namespace ckpt {

/// The written files, and the ones that make them a checkpoint.
struct SaveToPublish {
  std::string run_directory;
  std::uint64_t step = 0;
  universal::Manifest manifest{};  ///< complete but for the generation and sums.bin
  std::vector<universal::FileRecord> files{};
  std::vector<Hash128> leaves{};
  std::string statistics{};            ///< marks/save-statistics.json; none where empty
  std::vector<SmallFile> marks{};      ///< further files below marks/: its initial marks
  std::uint64_t least_generation = 0;  ///< another tier of the run has those below
};
constexpr std::string_view kStatisticsPath = "marks/save-statistics.json";

/// Steps 5 and 6 of the commit (engine/publish/publish.hpp), under the lock of the run directory: the generation is
/// ours until the name is durable. Then a note for the store's catalog (engine/store/inbox.hpp), without a sync, if
/// there is a store. Returns the name.
Result<std::string> publish_save(Io& io, Publication& publication, SaveToPublish save);

/// Every folder of a checkpoint: other ranks make their files there.
std::vector<std::string> all_folders();

}  // namespace ckpt
