#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ckpt {

/// SHA-256 (FIPS 180-4) over pieces, for files whose digests other programs state.
class Sha256 {
 public:
  void update(std::span<const std::byte> data);
  /// 64 lower-case digits; nothing can be added afterwards.
  std::string finish();

 private:
  static constexpr std::size_t kBlock = 64;
  void take(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlock> pending_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace ckpt
