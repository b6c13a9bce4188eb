#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/run_copies.hpp"
#include "engine/io.hpp"
#include "format/manifest.hpp"
#include "format/result.hpp"

/// The series of a run, as all that can be read tells: no single checkpoint decides, as that one may be damaged. A save
/// in a lower series than one that exists would be superseded from its beginning.
namespace ckpt {

/// What is known of the series of a run.
struct RunSeries {
  std::vector<RunCheckpoint> standing{};  ///< newest first; those whose manifest cannot be read too
  std::vector<bool> superseded{};         ///< of each of these
  std::uint64_t greatest = 0;             ///< of every manifest and of every record of a deletion
  std::optional<std::uint64_t> from{};    ///< the step that it began from

  std::uint64_t newest_generation() const { return standing.empty() ? 0 : standing.front().name.generation; }
};

/// `standing`: as list_copies tells. The trash is that of the store the run's directory lies in.
/// errors  io: the run's part of the trash cannot be listed
Result<RunSeries> series_of(Io& io, const std::string& run_directory, std::vector<RunCheckpoint> standing);

/// What the next manifest of a run says where it stays in the run's newest series; its generation is that of the
/// commit.
universal::Run stay_in_series(const std::string& run_directory, const RunSeries& known);

/// And where it begins one. `from`: what stands of later steps is superseded; nothing: it supersedes nothing.
universal::Run begin_series(const std::string& run_directory, const RunSeries& known,
                            std::optional<std::uint64_t> from);

}  // namespace ckpt
