#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "format/result.hpp"

/// Numbers with units as people write them, on the command line and in policy files.
namespace ckpt {

/// Reads a size. A lone letter is binary, as in Slurm and rclone: "4G" = "4GiB" = 2^32; "4GB" = 4*10^9. Letters K, M,
/// G, T, P, E in either case; fractions ("1.5TiB", rounded down to a byte); '_' between digits; a blank before the
/// unit; "B" or nothing = bytes.
///
/// errors   usage: not a size, or 2^64 and more
Result<std::uint64_t> parse_size(std::string_view text);

/// The same, or a percentage of `total` ("50%", 0 < p <= 100).
Result<std::uint64_t> parse_share(std::string_view text, std::uint64_t total);

/// Reads a time: "90s", "15m", "2h", "7d", "4w", "250ms"; fractions; without a unit only 0. usage on anything else.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Reads an integer from `least` to `most`; usage otherwise.
Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t least, std::uint64_t most);

/// "62.9 MiB": three significant digits, powers of 1024. For messages; numbers for programs stay in bytes.
std::string size_text(std::uint64_t bytes);

}  // namespace ckpt
