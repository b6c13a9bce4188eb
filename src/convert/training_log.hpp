#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A number that a trainer logged.
struct LoggedValue {
  std::string name{};  ///< "eval/loss"
  std::uint64_t step = 0;
  double value = 0;
};

/// A training log: TensorBoard's event files (events.out.tfevents.*), metrics.csv of Lightning's CSVLogger,
/// wandb-summary.json, or a directory with any of them in it and at most four levels below. In the order of the files'
/// paths and their records; values that are not finite are left out. A file that is still being written is read up to
/// its last whole record.
/// errors  not_found; unsupported: no such log; corrupt: not what its name says; io
Result<std::vector<LoggedValue>> read_training_log(Io& io, const std::string& path);

}  // namespace ckpt
