#pragma once

#include <string>
#include <vector>

#include "api/catalog/store_catalog.hpp"
#include "catalog/checkpoint.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// ckpt mark --metrics-from.
struct LogMetricsRequest {
  std::string store;
  std::string name{};               ///< of a run, or of one checkpoint as find_checkpoint takes it
  std::string log{};                ///< as read_training_log takes it
  std::vector<std::string> only{};  ///< globs of metrics; none: all
  std::string owner{};
  catalog::Time now{};
};
struct LogMetricsReport {
  std::vector<MarkReport> marked{};    ///< oldest first
  std::vector<std::string> without{};  ///< labels of checkpoints for whose steps nothing was logged
  std::vector<std::string> warnings{};
};

/// Records at each checkpoint the values of a training log: of each metric the last one up to the checkpoint's step, and
/// after the step of the checkpoint before it.
/// errors  those of read_training_log; not_found: no such run or checkpoint, no metric of these names, or no value for any
///         of the checkpoints; those of change_marks
Result<LogMetricsReport> record_log_metrics(Io& io, const LogMetricsRequest& request);

}  // namespace ckpt
