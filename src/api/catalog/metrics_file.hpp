#pragma once

#include <string>
#include <string_view>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Writes metrics of `ckpt status` for Prometheus' text file collector, atomically.
/// errors  usage: the file is a link, is not regular, or holds something else
Result<> write_metrics(Io& io, const std::string& file, std::string_view text);

}  // namespace ckpt
