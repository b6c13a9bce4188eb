#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/hash.hpp"
#include "format/result.hpp"
#include "format/universal/sums.hpp"
#include "writers/pending_save.hpp"

namespace ckpt {

/// What rank 0 needs to know of a rank's files before it commits: 40 bytes per file, 16 per leaf, and times.
struct RankRecord {
  std::vector<universal::FileRecord> files{};
  std::vector<Hash128> leaves{};
  SaveTimes times{};
};
std::string to_text(const RankRecord& record);
/// errors  internal: not made by to_text
Result<RankRecord> record_from_text(std::string_view text);

/// The files of all ranks in the order of sums.bin, with their leaves.
struct MergedRecords {
  std::vector<universal::FileRecord> files{};
  std::vector<Hash128> leaves{};
};
MergedRecords merge(const std::vector<RankRecord>& ranks);

/// marks/save-statistics.json: seconds of each phase by rank, and which rank was the slowest.
std::string statistics_text(const std::vector<RankRecord>& ranks);

}  // namespace ckpt
