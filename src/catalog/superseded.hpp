#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "catalog/retain.hpp"

namespace ckpt::catalog {

/// How a series of a run began.
struct SeriesStart {
  std::uint64_t series = 0;
  std::optional<std::uint64_t> from{};   ///< Checkpoint::series_from
  std::optional<std::uint64_t> after{};  ///< Checkpoint::series_after
};

/// What series of one run mean for those before them.
struct Lineage {
  std::vector<SeriesStart> standing{};  ///< greatest first; each supersedes later steps of those before it
  std::vector<SeriesStart> returns{};   ///< of these, those that leave series behind: all after `after`

  /// The series that has left this one behind, which supersedes nothing then.
  std::optional<std::uint64_t> left_by(std::uint64_t series) const;
  /// Whether a checkpoint of this series and step is superseded.
  bool supersedes(std::uint64_t series, std::uint64_t step) const;
};
/// A series that continues one before the last leaves all between the two behind: a job went back to a checkpoint that
/// they had superseded.
Lineage lineage_of(std::vector<SeriesStart> starts);

/// Since when each checkpoint is superseded; nothing if it is not. A checkpoint is superseded if a later series of its
/// run began at an earlier step, or has left its series behind: since the first such series began (its recorded start,
/// else the time by which its oldest checkpoint was both saved and committed). O(n log n), however many series a run has.
std::vector<std::optional<Time>> superseded_since(std::span<const Checkpoint> checkpoints,
                                                  std::span<const SeriesBirth> births);

}  // namespace ckpt::catalog
