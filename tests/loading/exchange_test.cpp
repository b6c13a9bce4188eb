// When dividing a load stops paying.
#include "loading/exchange.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

TEST(ReadingIsFaster, WhereTheSlowestRankWouldHaveReadInLessTime) {
  // 100 MiB at a millisecond a MiB.
  EXPECT_TRUE(
      reading_is_faster({.read_ns_a_mib = 1'000'000, .received_bytes = 100 * kMib, .exchange_ns = 100'000'001}));
  EXPECT_FALSE(
      reading_is_faster({.read_ns_a_mib = 1'000'000, .received_bytes = 100 * kMib, .exchange_ns = 100'000'000}));
}

TEST(ReadingIsFaster, IsNotSaidOfWhatIsTooLittleToTell) {
  EXPECT_FALSE(reading_is_faster({.read_ns_a_mib = 1, .received_bytes = 16 * kMib - 1, .exchange_ns = 1'000'000'000}));
  EXPECT_TRUE(reading_is_faster({.read_ns_a_mib = 1, .received_bytes = 16 * kMib, .exchange_ns = 1'000'000'000}));
  EXPECT_FALSE(reading_is_faster({.read_ns_a_mib = 0, .received_bytes = 16 * kMib, .exchange_ns = 1'000'000'000}));
}

}  // namespace
}  // namespace ckpt
