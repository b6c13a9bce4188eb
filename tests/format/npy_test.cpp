// Headers of NumPy files.
#include "format/files/npy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ckpt::npy {
namespace {

TEST(NpyHeader, IsWhatNumPyWrites) {
  // numpy 2.1: np.save of np.zeros((3, 4), '<f4')
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  expected.append(127 - expected.size(), ' ');
  EXPECT_EQ(build_header(Dtype::f32, {3, 4}, 64).value(), expected + "\n");
}

TEST(NpyHeader, ShapesAreTuples) {
  const auto shape = [](const Shape& dims) {
    const std::string header = build_header(Dtype::i64, dims, 64).value();
    const auto at = header.find("'shape': ");
    return header.substr(at + 9, header.find(')', at) - at - 8);
  };
  EXPECT_EQ(shape({}), "()");
  EXPECT_EQ(shape({5}), "(5,)");
  EXPECT_EQ(shape({0, 1152921504606846975U}), "(0, 1152921504606846975)");
}

TEST(NpyHeader, DimensionsFitWhereNumPyHoldsThemSigned) {
  const auto none = build_header(Dtype::u8, {0, std::uint64_t{1} << 63}, 64);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::unsupported);
  EXPECT_TRUE(build_header(Dtype::u8, {0, (std::uint64_t{1} << 63) - 1}, 64));
  EXPECT_FALSE(build_header(Dtype::f32, {0, std::uint64_t{1} << 61}, 64));
  EXPECT_FALSE(build_header(Dtype::u8, {0, std::uint64_t{1} << 62, 2}, 64));
}

TEST(NpyHeader, EndsWhereItIsAskedTo) {
  for (const std::size_t alignment : {64U, 4096U}) {
    for (std::size_t dims = 0; dims <= 32; ++dims) {
      Shape shape(dims, 10);
      shape.resize(std::min<std::size_t>(dims, 18));
      shape.resize(dims, 1);
      const std::string header = build_header(Dtype::u8, shape, alignment).value();
      EXPECT_EQ(header.size() % alignment, 0U);
      EXPECT_EQ(header.back(), '\n');
      const auto byte = [&](std::size_t at) {
        return static_cast<std::size_t>(static_cast<unsigned char>(header[at]));
      };
      EXPECT_EQ(byte(8) + 256 * byte(9) + 10, header.size());
    }
  }
  EXPECT_EQ(build_header(Dtype::u8, Shape(33, 1), 64).error().code, Errc::unsupported);
}

TEST(NpyType, BitsStandInForWhatNumPyLacks) {
  EXPECT_EQ(type_of(Dtype::bf16).descr, "<u2");
  EXPECT_TRUE(type_of(Dtype::bf16).is_bits);
  EXPECT_EQ(type_of(Dtype::f8_e4m3).descr, "|u1");
  EXPECT_FALSE(type_of(Dtype::f16).is_bits);
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (!is_packed(dtype)) {
      EXPECT_EQ(std::to_string(dtype_bits(dtype) / 8), type_of(dtype).descr.substr(2)) << dtype_name(dtype);
    }
  }
  EXPECT_EQ(array_shape(Dtype::f4, {3, 6}).value(), (Shape{3, 3}));
  EXPECT_EQ(array_shape(Dtype::f6_e2m3, {2, 4}).value(), (Shape{2, 3}));
  EXPECT_EQ(array_shape(Dtype::f4, {2, 3}).value(), (Shape{3}));
}

}  // namespace
}  // namespace ckpt::npy
