#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "catalog/bucket.hpp"

namespace ckpt::catalog {

/// "2026-01-02T03:04:05.678Z".
std::string time_text(Time time);

/// Reads a time of the years 1 to 9999: "2026-01-02T03:04:05.678Z", the fraction of 1 to 9 digits or absent,
/// digits below a millisecond dropped; or a day, "2026-01-02", which is its first moment. Always UTC.
std::optional<Time> parse_time(std::string_view text);

}  // namespace ckpt::catalog
