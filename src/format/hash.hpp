#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ckpt {

/// An XXH3-128 value in its canonical (big-endian) byte order, seed 0.
struct Hash128 {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Hash128&) const = default;
  std::string hex() const;  ///< 32 lower-case digits
  /// Its halves as this machine reads them: for ranks to compare, not to be stored.
  std::array<std::uint64_t, 2> words() const { return std::bit_cast<std::array<std::uint64_t, 2>>(bytes); }
  /// The value of exactly 32 lower-case digits; nothing for any other text.
  static std::optional<Hash128> from_hex(std::string_view digits);
};

/// XXH3-128 of a span; picks the widest vector unit of the machine at run time.
Hash128 hash128(std::span<const std::byte> data);
Hash128 hash128(std::string_view text);

/// The same over pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(std::span<const std::byte> data);
  void update(std::string_view text);
  void update_u64(std::uint64_t value);  ///< little-endian
  void update_u32(std::uint32_t value);
  Hash128 digest() const;

 private:
  void* state_;
};

/// XXH64 of the text's bytes, seed 0.
std::uint64_t hash64(std::string_view text);

/// ISO CRC-32 (zip), continued from `crc` (0 to begin).
std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> data);

/// The CRC-32 of two pieces that follow each other, from that of each and the second one's length in bytes.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace ckpt
