#include "format/model/finite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "format/model/cast.hpp"

namespace ckpt {
namespace {

TEST(Finite, EveryHalfAndBfloatIsCountedAsItsFloatIs) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    std::vector<std::uint16_t> all(0x10000);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(all.size());
    CastCounts counts;
    cast(dtype, reinterpret_cast<const std::byte*>(all.data()), Dtype::f32, reinterpret_cast<std::byte*>(wide.data()),
         all.size(), counts);
    NotFinite wanted;
    for (const float value : wide) {
      wanted.nan += std::isnan(value) ? 1u : 0u;
      wanted.infinite += std::isinf(value) ? 1u : 0u;
    }
    const NotFinite found = count_not_finite(dtype, std::as_bytes(std::span(all)));
    EXPECT_EQ(found.nan, wanted.nan);
    EXPECT_EQ(found.infinite, wanted.infinite);
    EXPECT_EQ(wanted.infinite, 2u);
    const NotFinite same = count_not_finite(Dtype::f32, std::as_bytes(std::span(wide)));
    EXPECT_EQ(same.nan, wanted.nan);
    EXPECT_EQ(same.infinite, wanted.infinite);
  }
}

/// Over all 256 values; the counts are those of the OCP and MX specifications' tables.
TEST(Finite, TypesOfEightBitsHaveTheSpecialValuesOfTheirTables) {
  std::vector<std::uint8_t> all(256);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
  const auto count = [&](Dtype dtype) { return count_not_finite(dtype, std::as_bytes(std::span(all))); };
  EXPECT_EQ(count(Dtype::f8_e5m2).nan, 6u);
  EXPECT_EQ(count(Dtype::f8_e5m2).infinite, 2u);
  EXPECT_EQ(count(Dtype::f8_e4m3).nan, 2u);
  EXPECT_EQ(count(Dtype::f8_e8m0).nan, 1u);
  EXPECT_EQ(count(Dtype::f8_e4m3fnuz).nan, 1u);
  EXPECT_EQ(count(Dtype::f8_e5m2fnuz).nan, 1u);
  for (const Dtype dtype : {Dtype::f8_e4m3, Dtype::f8_e8m0, Dtype::f8_e4m3fnuz, Dtype::f8_e5m2fnuz})
    EXPECT_EQ(count(dtype).infinite, 0u);
}

TEST(Finite, DoublesAndBothHalvesOfComplexNumbersCountAndIntegersDoNot) {
  const double doubles[] = {1.0, NAN, -INFINITY, 1e308};
  const NotFinite of_doubles = count_not_finite(Dtype::f64, std::as_bytes(std::span(doubles)));
  EXPECT_EQ(of_doubles.nan, 1u);
  EXPECT_EQ(of_doubles.infinite, 1u);
  const float complex[] = {NAN, INFINITY, 0, -NAN};
  const NotFinite of_complex = count_not_finite(Dtype::c64, std::as_bytes(std::span(complex)));
  EXPECT_EQ(of_complex.nan, 2u);
  EXPECT_EQ(of_complex.infinite, 1u);
  EXPECT_FALSE(count_not_finite(Dtype::i32, std::as_bytes(std::span(complex))).any());
  for (const Dtype dtype : {Dtype::i32, Dtype::u8, Dtype::boolean, Dtype::f4, Dtype::f6_e2m3})
    EXPECT_FALSE(has_nan(dtype));
}

}  // namespace
}  // namespace ckpt
