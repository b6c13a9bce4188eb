#include "api/convert/measure.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ckpt {
namespace {

template <class Number>
ValueDifference measured(Dtype dtype, const std::vector<Number>& left, const std::vector<Number>& right) {
  ValueDifference out;
  measure_values(dtype, std::as_bytes(std::span(left)), std::as_bytes(std::span(right)), {}, out);
  return out;
}

TEST(MeasureValues, CountsAndComparesNumbers) {
  const auto out = measured<float>(Dtype::f32, {1, 2, -4, 0}, {1, 2.5, -3, 0});
  EXPECT_EQ(out.elements, 4u);
  EXPECT_EQ(out.differing, 2u);
  EXPECT_EQ(out.max_absolute, 1);
  EXPECT_EQ(out.max_relative, 0.25);
  EXPECT_EQ(out.one_is_nan, 0u);
}

TEST(MeasureValues, NaNsAreCountedAndInfinitiesAreInfinitelyFar) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto one = measured<float>(Dtype::f32, {nan, nan, 1}, {nan, 2, 1});
  EXPECT_EQ(one.differing, 1u);
  EXPECT_EQ(one.one_is_nan, 1u);
  EXPECT_EQ(one.max_absolute, 0);
  const auto two = measured<float>(Dtype::f32, {infinity}, {1});
  EXPECT_EQ(two.max_absolute, std::numeric_limits<double>::infinity());
  EXPECT_EQ(two.max_relative, 1);
  EXPECT_EQ(two.norm(), std::numeric_limits<double>::infinity());
}

TEST(MeasureValues, KnowsIntegersAndZeroesWithASign) {
  EXPECT_EQ(measured<std::int8_t>(Dtype::i8, {-128, 5}, {127, 5}).max_absolute, 255);
  EXPECT_EQ(measured<std::uint16_t>(Dtype::bf16, {0x3f80}, {0x4000}).max_absolute, 1) << "1 and 2";
  EXPECT_EQ(measured<std::uint16_t>(Dtype::f16, {0x3c00}, {0x4000}).max_absolute, 1);
  const auto zeroes = measured<float>(Dtype::f32, {0.0F}, {-0.0F});
  EXPECT_EQ(zeroes.differing, 1u) << "other bits";
  EXPECT_EQ(zeroes.max_absolute, 0);
  EXPECT_EQ(measured<std::uint8_t>(Dtype::f8_e4m3, {1, 2}, {1, 3}).differing, 1u);
}

TEST(MeasureValues, IntegersThatNoDoubleHoldsHaveTheirDistance) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(measured<std::int64_t>(Dtype::i64, {most, least}, {most - 1, least + 1}).max_absolute, 1);
  EXPECT_EQ(measured<std::int64_t>(Dtype::i64, {most}, {least}).max_absolute, 0x1p64);
  EXPECT_EQ(measured<std::uint64_t>(Dtype::u64, {~std::uint64_t{0}}, {~std::uint64_t{0} - 3}).max_absolute, 3);
  ValueDifference out;
  const std::vector<std::int64_t> left{most};
  const std::vector<std::int64_t> right{most - 1};
  measure_values(Dtype::i64, std::as_bytes(std::span(left)), std::as_bytes(std::span(right)),
                 Tolerance{.absolute = 0.5}, out);
  EXPECT_EQ(out.beyond, 1u) << "1 is not within 0.5";
}

TEST(MeasureValues, GreatDoublesHaveARelativeDistance) {
  const auto out = measured<double>(Dtype::f64, {1.7e308}, {-1.7e308});
  EXPECT_EQ(out.max_relative, 2);
}

TEST(MeasureValues, TheNormIsThatOfAllValuesAsOneVector) {
  const auto out = measured<float>(Dtype::f32, {3, 4, 1}, {0, 4, 3});
  EXPECT_DOUBLE_EQ(out.norm(), std::sqrt(13.0 / 25.0));
  EXPECT_EQ(measured<float>(Dtype::f32, {0}, {-0.0F}).norm(), 0);
  EXPECT_EQ(measured<float>(Dtype::f32, {1}, {0}).norm(), std::numeric_limits<double>::infinity());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_DOUBLE_EQ(measured<float>(Dtype::f32, {nan, 2}, {1, 1}).norm(), std::sqrt(0.5)) << "of numbers";
  EXPECT_DOUBLE_EQ(measured<double>(Dtype::f64, {1e300, 2e300}, {1e300, 1e300}).norm(), std::sqrt(0.5));
}

TEST(MeasureValues, KnowsFloatsOfAByteAndComplexNumbers) {
  const auto distance = [](Dtype dtype, std::uint8_t left, std::uint8_t right) {
    return measured<std::uint8_t>(dtype, {left}, {right}).max_absolute;
  };
  EXPECT_EQ(distance(Dtype::f8_e4m3, 0x38, 0xb8), 2) << "1 and -1";
  EXPECT_EQ(distance(Dtype::f8_e4m3, 0x7e, 0x00), 448) << "the greatest";
  EXPECT_EQ(distance(Dtype::f8_e4m3, 0x01, 0x00), std::ldexp(1.0, -9)) << "the least";
  EXPECT_EQ(distance(Dtype::f8_e5m2, 0x3c, 0x40), 1) << "1 and 2";
  EXPECT_EQ(distance(Dtype::f8_e4m3fnuz, 0x40, 0x00), 1);
  EXPECT_EQ(distance(Dtype::f8_e4m3fnuz, 0x7f, 0x00), 240);
  EXPECT_EQ(distance(Dtype::f8_e5m2fnuz, 0x40, 0x00), 1);
  EXPECT_EQ(distance(Dtype::f8_e8m0, 127, 128), 1);
  const std::vector<std::pair<Dtype, std::uint8_t>> nans{{Dtype::f8_e4m3, 0xff},
                                                         {Dtype::f8_e5m2, 0x7d},
                                                         {Dtype::f8_e4m3fnuz, 0x80},
                                                         {Dtype::f8_e5m2fnuz, 0x80},
                                                         {Dtype::f8_e8m0, 0xff}};
  for (const auto& [dtype, nan] : nans)
    EXPECT_EQ(measured<std::uint8_t>(dtype, {nan}, {0x00}).one_is_nan, 1u) << dtype_name(dtype);
  const auto complex = measured<float>(Dtype::c64, {3, 4, 1, 1}, {0, 0, 1, 1});
  EXPECT_EQ(complex.elements, 2u);
  EXPECT_EQ(complex.differing, 1u);
  EXPECT_EQ(complex.max_absolute, 5);
}

TEST(MeasureValues, WhatIsWithinTheToleranceIsNotBeyondIt) {
  const auto beyond = [](Dtype dtype, const auto& left, const auto& right, Tolerance tolerance) {
    ValueDifference out;
    measure_values(dtype, std::as_bytes(std::span(left)), std::as_bytes(std::span(right)), tolerance, out);
    return out.beyond;
  };
  using Floats = std::vector<float>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(beyond(Dtype::f32, Floats{1, 10, 100}, Floats{1.25F, 11, 111}, {.absolute = 0.25, .relative = 0.1}), 0u);
  EXPECT_EQ(beyond(Dtype::f32, Floats{1, 10, 100}, Floats{1.5F, 11, 112}, {.absolute = 0.25, .relative = 0.1}), 2u);
  EXPECT_EQ(beyond(Dtype::f32, Floats{90}, Floats{100}, {.relative = 0.1}), 0u) << "relative to the other one";
  EXPECT_EQ(beyond(Dtype::f32, Floats{100}, Floats{90}, {.relative = 0.1}), 1u);
  EXPECT_EQ(beyond(Dtype::f32, Floats{0, -nan, infinity}, Floats{-0.0F, nan, infinity}, {}), 0u);
  EXPECT_EQ(
      beyond(Dtype::f32, Floats{1, infinity, infinity}, Floats{nan, -infinity, 1}, {.absolute = 9, .relative = 9}), 3u);
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(beyond(Dtype::f4, Bytes{1, 2}, Bytes{1, 3}, {.absolute = 9, .relative = 9}), 1u) << "packed";
}

TEST(MissingPrefix, IsThatOfAllNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(missing_prefix(Names{"model.a.w", "model.b"}, Names{"a.w", "b"}), "model.");
  EXPECT_EQ(missing_prefix(Names{"a.w", "b"}, Names{"model.a.w", "model.b", "optimizer.step"}), "model.");
  EXPECT_EQ(missing_prefix(Names{"model.a", "model.b"}, Names{"a", "c"}), std::nullopt);
  EXPECT_EQ(missing_prefix(Names{"mya"}, Names{"a"}), std::nullopt) << "not a whole part";
  EXPECT_EQ(missing_prefix(Names{}, Names{"a"}), std::nullopt);
}

}  // namespace
}  // namespace ckpt
