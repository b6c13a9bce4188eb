#include "format/files/zarr.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

namespace ckpt::zarr {
namespace {

/// One of Megatron-LM's, with a member replaced.
std::string document(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({"chunks":[1,16],"compressor":null,"dtype":"<f4","fill_value":null,"filters":null,)"
                     R"("order":"C","shape":[2,16],"zarr_format":2})";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Zarr, AnArrayHasAShapeATypeAndChunks) {
  const auto array = parse_array(document());
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->shape, (Shape{2, 16}));
  EXPECT_EQ(array->chunk, (Shape{1, 16}));
  EXPECT_EQ(array->dtype, Dtype::f32);
  EXPECT_EQ(array->chunk_bytes, 64U);
  EXPECT_EQ(chunk_name(*array, std::array<std::uint64_t, 2>{1, 0}), "1.0");
  EXPECT_EQ(chunk_name(*array, {}), "0");
}

TEST(Zarr, TypesAreThoseOfNumpyAndTensorstore) {
  const auto type = [](const std::string& name) { return parse_array(document("<f4", name)); };
  EXPECT_EQ(type("bfloat16")->dtype, Dtype::bf16);
  EXPECT_EQ(type("float8_e4m3fn")->dtype, Dtype::f8_e4m3);
  EXPECT_EQ(type("|b1")->dtype, Dtype::boolean);
  EXPECT_EQ(type("<i8")->dtype, Dtype::i64);
  EXPECT_EQ(type("<c16")->dtype, Dtype::f64);
  EXPECT_TRUE(type("<c16")->is_complex128);
  EXPECT_EQ(type("<c16")->chunk_bytes, 256U);
  EXPECT_TRUE(type(">f8")->big_endian);
  for (const std::string_view name : {"<V2", "|f4", "<u1", "<M8[s]", "float32", ">c8", "", "<"})
    EXPECT_EQ(type(std::string(name)).error().code, Errc::unsupported) << name;
}

TEST(Zarr, WhatIsNotReadIsNamed) {
  const auto code = [](const std::string& from, const std::string& to) -> std::optional<Errc> {
    const auto array = parse_array(document(from, to));
    return array ? std::nullopt : std::optional(array.error().code);
  };
  EXPECT_EQ(code(R"("compressor":null)", R"("compressor":{"id":"zlib"})"), Errc::unsupported);
  EXPECT_EQ(code(R"("filters":null)", R"("filters":[{"id":"delta"}])"), Errc::unsupported);
  EXPECT_EQ(code(R"("filters":null)", R"("filters":[])"), std::nullopt);
  EXPECT_EQ(code(R"("zarr_format":2)", R"("zarr_format":3)"), Errc::unsupported);
  EXPECT_EQ(code("[1,16]", "[0,16]"), Errc::corrupt);
  EXPECT_EQ(code("[1,16]", "[16]"), Errc::corrupt);
  EXPECT_EQ(code("[1,16]", "[4294967296,4294967296]"), Errc::corrupt);
  EXPECT_EQ(code("[2,16]", "[-2,16]"), Errc::corrupt);
  EXPECT_EQ(code(R"("C")", R"("A")"), Errc::corrupt);
  EXPECT_EQ(code("{", "["), Errc::corrupt);
}

}  // namespace
}  // namespace ckpt::zarr
