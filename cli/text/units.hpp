#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// How sizes are written: GiB (the default), GB (--si), or plain bytes (--bytes).
enum class SizeStyle : std::uint8_t { binary, decimal, exact };

/// "14.9 GiB", "256 MiB", "5 GB", "512 B": three significant digits, without a fraction of zeros.
std::string format_size(std::uint64_t bytes, SizeStyle style);
/// Of fewer bytes a rate says nothing.
inline constexpr std::uint64_t kLeastRated = std::uint64_t{64} << 20;
/// "2.10 GiB/s".
std::string format_rate(double bytes_per_second, SizeStyle style);
/// "9.3/14.9 GiB": both in the unit and with the digits of the second, so that a moving line does not jump.
std::string format_size_of(std::uint64_t done, std::uint64_t total, SizeStyle style);

/// "0.08 s", "8.1 s", "2 min 05 s", "1 h 12 min".
std::string format_seconds(double seconds);
/// "0:03", "12:45", "1:02:45".
std::string format_clock(double seconds);

/// Digits in groups of three: "1 166".
std::string format_count(std::uint64_t count);
/// "291 tensors", "1 tensor".
std::string format_counted(std::uint64_t count, std::string_view noun);
/// For parameter counts: "8.03 billion", "512 million", "4 352".
std::string format_quantity(std::uint64_t count);

}  // namespace ckpt::cli
