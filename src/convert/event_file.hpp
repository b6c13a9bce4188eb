#pragma once

#include <string>
#include <vector>

#include "convert/training_log.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::training_log {

/// The scalars of one event file of TensorBoard: TFRecords (tensorflow/core/lib/io/record_writer.h) of Event messages
/// (tensorflow/core/util/event.proto). `simple_value`, and tensors of one float, double or integer. Appends to `out`.
/// errors  corrupt: it begins with no record; those of reading
Result<> read_event_file(Io& io, const std::string& path, std::vector<LoggedValue>& out);

}  // namespace ckpt::training_log
