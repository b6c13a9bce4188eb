#include "engine/run/stream_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ckpt {
namespace {

constexpr std::byte kAround{0xa5};

/// Copies between any two places, and says whether those bytes and no others were written.
bool copies_exactly(std::size_t from, std::size_t to, std::size_t bytes) {
  std::vector<std::byte> source(from + bytes + 64);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 + i / 251);
  std::vector<std::byte> target(to + bytes + 64, kAround);
  stream_copy(target.data() + to, source.data() + from, bytes);
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
  const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
  const auto untouched = [](std::byte value) { return value == kAround; };
  return std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)) &&
         std::all_of(target.begin(), begin, untouched) && std::all_of(end, target.end(), untouched);
}

TEST(StreamCopy, WritesTheBytesAndNoOthersAtAnyAlignmentAndLength) {
  for (std::size_t from = 0; from < 17; ++from) {
    for (std::size_t to = 0; to < 66; ++to) {
      for (const std::size_t bytes : {0u, 1u, 15u, 63u, 64u, 65u, 127u, 128u, 200u, 1000u}) {
        ASSERT_TRUE(copies_exactly(from, to, bytes)) << from << " " << to << " " << bytes;
      }
    }
  }
  EXPECT_TRUE(copies_exactly(3, 5, (std::size_t{4} << 20) + 7));
}

}  // namespace
}  // namespace ckpt
