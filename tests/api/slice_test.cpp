// Slices as NumPy writes them.
#include "api/convert/slice.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ckpt {
namespace {

Tensor tensor(Shape shape, Dtype dtype = Dtype::f32) {
  return {.name = "t", .dtype = dtype, .shape = std::move(shape)};
}

/// "offset size -> shape", or the reason of the refusal.
std::string taken(const std::string& entries, const Tensor& of) {
  const auto slice = parse_slice("t[" + entries + "]");
  if (!slice) return slice.error().message;
  const auto part = apply_slice(*slice, of);
  if (!part) {
    EXPECT_EQ(part.error().code, Errc::usage);
    EXPECT_EQ(part.error().tensor, "t");
    return part.error().message;
  }
  const auto list = [](const Shape& shape) {
    std::string out;
    for (const std::uint64_t each : shape) out += (out.empty() ? "" : ",") + std::to_string(each);
    return out;
  };
  return list(part->box.offset) + " " + list(part->box.size) + " -> " + list(part->shape);
}

TEST(Slice, TakesWhatNumPyTakes) {
  const Tensor t = tensor({10, 4});
  EXPECT_EQ(taken("0:3,:", t), "0,0 3,4 -> 3,4");
  EXPECT_EQ(taken(" 0 : 3 , : ", t), "0,0 3,4 -> 3,4");
  EXPECT_EQ(taken("2:", t), "2,0 8,4 -> 8,4");
  EXPECT_EQ(taken("-3:", t), "7,0 3,4 -> 3,4");
  EXPECT_EQ(taken(":-3", t), "0,0 7,4 -> 7,4");
  EXPECT_EQ(taken(":, 1:2", t), "0,1 10,1 -> 10,1");
  EXPECT_EQ(taken("-1", t), "9,0 1,4 -> 4");
  EXPECT_EQ(taken("3, 2", t), "3,2 1,1 -> ");
  EXPECT_EQ(taken("...", t), "0,0 10,4 -> 10,4");
  EXPECT_EQ(taken("..., 0", t), "0,0 10,1 -> 10");
  EXPECT_EQ(taken("0, ..., 1:3", tensor({5, 6, 7})), "0,0,1 1,6,2 -> 6,2");
  EXPECT_EQ(taken("0, ...", tensor({5})), "0 1 -> ");
}

TEST(Slice, RangesAreCutToTheTensorAndMayBeEmpty) {
  const Tensor t = tensor({10});
  EXPECT_EQ(taken("5:100", t), "5 5 -> 5");
  EXPECT_EQ(taken("-100:2", t), "0 2 -> 2");
  EXPECT_EQ(taken("20:30", t), "10 0 -> 0");
  EXPECT_EQ(taken("7:3", t), "7 0 -> 0");
  EXPECT_EQ(taken("-9223372036854775808:9223372036854775807", t), "0 10 -> 10");
}

TEST(Slice, IsRefusedWithItsReason) {
  const auto says = [](const std::string& message, const std::string& reason) {
    return message.find(reason) != std::string::npos;
  };
  const Tensor t = tensor({10, 4});
  EXPECT_TRUE(says(taken("10", t), "index 10 is outside dimension 0, which has 10"));
  EXPECT_TRUE(says(taken("-11", t), "outside"));
  EXPECT_TRUE(says(taken("-9223372036854775808", t), "outside"));
  EXPECT_TRUE(says(taken("0", tensor({0})), "outside"));
  EXPECT_TRUE(says(taken("0,0,0", t), "3 entries, but the tensor has 2"));
  EXPECT_TRUE(says(taken("0", tensor({})), "1 entries"));
  EXPECT_TRUE(says(taken("::2", t), "slice steps are not supported"));
  EXPECT_TRUE(says(taken("", t), "empty"));
  EXPECT_TRUE(says(taken("1,,2", t), "empty"));
  EXPECT_TRUE(says(taken("...,...", t), "twice"));
  EXPECT_TRUE(says(taken("a:3", t), "'a' is not a number"));
  EXPECT_TRUE(says(taken("1.5", t), "is not a number"));
  EXPECT_TRUE(says(taken("99999999999999999999", t), "too large"));
  for (const char* text : {"", "t", "t[", "t]", "[0]", "t[0] ", "t(0)"}) {
    const auto slice = parse_slice(text);
    ASSERT_FALSE(slice) << text;
    EXPECT_EQ(slice.error().code, Errc::usage);
  }
}

TEST(Slice, OfAPackedTypeTakesAllOfItOrNothing) {
  const Tensor t = tensor({4, 8}, Dtype::f4);
  EXPECT_EQ(taken(":, :", t), "0,0 4,8 -> 4,8");
  EXPECT_NE(taken("0:2", t).find("share bytes"), std::string::npos);
}

TEST(Slice, NamesMayHoldBrackets) {
  const auto slice = parse_slice("a[0].b[1:2]");
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->name, "a[0].b");
  EXPECT_EQ(slice->text, "[1:2]");
}

}  // namespace
}  // namespace ckpt
