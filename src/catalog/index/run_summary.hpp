#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/bucket.hpp"
#include "catalog/index/database.hpp"
#include "format/result.hpp"

/// The runs of a store in a line each, for `ckpt status`.
namespace ckpt::catalog {

/// All runs that have checkpoints, summed up.
struct RunSummary {
  std::string run{};
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  struct Newest {
    std::string name{};  ///< of its directory
    std::uint64_t step = 0;
    Time created{};
  };
  std::optional<Newest> newest{};                ///< of those that can be used, superseded or not
  std::optional<std::uint64_t> verified_step{};  ///< the newest of those
  std::uint64_t verified = 0;
  std::optional<std::uint64_t> restored_step{};  ///< the greatest of those that a trainer has loaded
  std::uint64_t damaged = 0;                     ///< corrupt
  std::uint64_t unreadable = 0;
  std::uint64_t pinned = 0;   ///< regardless of the pins' dates
  std::uint64_t demoted = 0;  ///< whose optimizer was dropped
  struct Demoted {
    std::string name{};
    std::string id{};
    std::uint64_t step = 0;
  };
  std::optional<Demoted> newest_demoted{};
  bool resaved = false;                 ///< several checkpoints of one series have the same step
  bool went_back = false;               ///< it has a series after the first
  std::optional<Time> last_verified{};  ///< when a checkpoint of it was verified last, whatever the result
  /// A metric of its checkpoints; NaN and infinite values do not count.
  struct Metric {
    std::string name{};
    double lowest = 0;
    std::uint64_t lowest_step = 0;
    double highest = 0;
    std::uint64_t highest_step = 0;
  };
  std::vector<Metric> metrics{};  ///< by name
};
Result<std::vector<RunSummary>> summarise_runs(Database& database);
/// Complete checkpoints of a run whose metric has this value.
Result<std::uint64_t> count_with_metric(Database& database, const std::string& run, const std::string& metric,
                                        double value);

}  // namespace ckpt::catalog
