#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/run/run_copies.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"

/// The series of a run, from everything that can be read: no single checkpoint decides, because it may be damaged. A
/// save in a lower series than an existing one would be superseded from the start.
namespace ckpt {

/// Known series of a run.
struct RunSeries {
  std::vector<RunCheckpoint> standing{};  ///< newest first, including those with an unreadable manifest
  std::vector<bool> superseded{};         ///< for each of `standing`; false if its series is not known
  std::uint64_t greatest = 0;             ///< over all manifests and deletion records that were read
  std::optional<std::uint64_t> from{};    ///< the step that the greatest series began from
  std::optional<std::uint64_t> after{};   ///< the series that it continues, if it is not the one before

  std::uint64_t newest_generation() const { return standing.empty() ? 0 : standing.front().name.generation; }
};

/// From the newest 1,000 checkpoints in the run directory, the newest 1,000 in a local tier (`local_directory` empty:
/// none) and the newest 1,000 deletion records in the trash of the store that contains the run directory.
/// errors  io: the run, or its part of the trash, cannot be listed
Result<RunSeries> series_of(Io& io, const std::string& run_directory, const std::string& local_directory);

/// Run entry of the next manifest if it continues the run's newest series; commit sets the generation.
universal::Run stay_in_series(const std::string& run_directory, const RunSeries& known);

/// The same if it begins a series. `from`: supersedes checkpoints of later steps; nothing: supersedes nothing. `after`: the
/// series that it continues, if later ones had left that behind.
universal::Run begin_series(const std::string& run_directory, const RunSeries& known, std::optional<std::uint64_t> from,
                            std::optional<std::uint64_t> after = {});

/// For people: `series` begins and supersedes the checkpoints after `step`.
std::string superseding_note(const universal::Run& series, std::uint64_t step);

}  // namespace ckpt
