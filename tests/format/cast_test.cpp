#include "format/model/cast.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace ckpt {
namespace {

template <class To, class From>
To cast_one(Dtype from, From value, Dtype to, CastCounts& counts) {
  To out{};
  cast(from, reinterpret_cast<const std::byte*>(&value), to, reinterpret_cast<std::byte*>(&out), 1, counts);
  return out;
}

TEST(Cast, EveryHalfAndBfloatSurvivesTheWayThroughFloat) {
  CastCounts counts;
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      const auto wide = cast_one<float>(dtype, half, Dtype::f32, counts);
      const auto back = cast_one<std::uint16_t>(Dtype::f32, wide, dtype, counts);
      if (std::isnan(wide)) {
        ASSERT_TRUE(std::isnan(cast_one<float>(dtype, back, Dtype::f32, counts)));
      } else {
        ASSERT_EQ(back, half) << dtype_name(dtype) << " " << bits;
      }
    }
  }
  EXPECT_EQ(counts.overflowed, 0u);
}

TEST(Cast, RoundsToTheNearestAndTiesToEven) {
  // For every two neighbours the midpoint goes to the even one, and its neighbours on either side to their own side.
  CastCounts counts;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const std::uint32_t infinity = dtype == Dtype::f16 ? 0x7c00 : 0x7f80;
    for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = cast_one<float>(dtype, static_cast<std::uint16_t>(bits), Dtype::f32, counts);
      const double high = cast_one<float>(dtype, static_cast<std::uint16_t>(bits + 1), Dtype::f32, counts);
      const double middle = low + (high - low) / 2;
      const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
      ASSERT_EQ(cast_one<std::uint16_t>(Dtype::f64, middle, dtype, counts), even) << bits;
      ASSERT_EQ(cast_one<std::uint16_t>(Dtype::f64, std::nextafter(middle, 0.0), dtype, counts), bits) << bits;
      ASSERT_EQ(cast_one<std::uint16_t>(Dtype::f64, std::nextafter(middle, 1e308), dtype, counts), bits + 1) << bits;
      const auto as_float = static_cast<float>(middle);
      if (static_cast<double>(as_float) == middle) {
        ASSERT_EQ(cast_one<std::uint16_t>(Dtype::f32, as_float, dtype, counts), even) << bits;
      }
    }
  }
}

TEST(Cast, CountsWhatOverflows) {
  CastCounts counts;
  EXPECT_EQ(cast_one<std::uint16_t>(Dtype::f32, 65504.0f, Dtype::f16, counts), 0x7bff);
  EXPECT_EQ(cast_one<std::uint16_t>(Dtype::f32, 65519.0f, Dtype::f16, counts), 0x7bff);
  EXPECT_EQ(counts.overflowed, 0u);
  EXPECT_EQ(cast_one<std::uint16_t>(Dtype::f32, 65520.0f, Dtype::f16, counts), 0x7c00);
  EXPECT_EQ(cast_one<std::uint16_t>(Dtype::f32, -1e30f, Dtype::f16, counts), 0xfc00);
  EXPECT_EQ(counts.overflowed, 2u);
  EXPECT_EQ(cast_one<std::uint16_t>(Dtype::f32, std::numeric_limits<float>::infinity(), Dtype::f16, counts), 0x7c00);
  EXPECT_EQ(counts.overflowed, 2u);
  EXPECT_EQ(cast_one<float>(Dtype::f64, 1e300, Dtype::f32, counts), std::numeric_limits<float>::infinity());
  EXPECT_EQ(counts.overflowed, 3u);
  EXPECT_EQ(counts.became_nan, 0u);
}

TEST(Cast, LongArraysAreCastBlockByBlock) {
  std::mt19937 random(7);
  std::vector<float> values(5000);
  for (float& value : values) value = std::ldexp(static_cast<float>(random()), -40);
  std::vector<std::uint16_t> out(values.size());
  CastCounts counts;
  cast(Dtype::f32, reinterpret_cast<const std::byte*>(values.data()), Dtype::bf16,
       reinterpret_cast<std::byte*>(out.data()), values.size(), counts);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(out[i], cast_one<std::uint16_t>(Dtype::f32, values[i], Dtype::bf16, counts)) << i;
  }
}

TEST(Cast, SwapsUnitsInPlace) {
  std::uint32_t values[] = {0x01020304, 0xa0b0c0d0};
  swap_bytes(reinterpret_cast<std::byte*>(values), 2, 4);
  EXPECT_EQ(values[0], 0x04030201u);
  EXPECT_EQ(values[1], 0xd0c0b0a0u);
  swap_bytes(reinterpret_cast<std::byte*>(values), 4, 2);
  EXPECT_EQ(values[0], 0x03040102u);
}

}  // namespace
}  // namespace ckpt
