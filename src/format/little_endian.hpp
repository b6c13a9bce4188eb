#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Unsigned numbers in files and messages, lowest byte first, whatever the machine's order.
namespace ckpt {

/// Appends the low `bytes` bytes of `value`, at most 8.
inline void append_little_endian(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

/// The number in `bytes` bytes from `at` on, at most 8; the caller has checked that they exist.
inline std::uint64_t read_little_endian(std::span<const std::byte> data, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(data[at + i]);
  return value;
}
inline std::uint64_t read_little_endian(std::string_view data, std::size_t at, std::size_t bytes) {
  return read_little_endian(std::as_bytes(std::span(data)), at, bytes);
}

}  // namespace ckpt
