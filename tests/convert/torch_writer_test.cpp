#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "convert/formats.hpp"
#include "convert/raw_source.hpp"

namespace ckpt {
namespace {

std::string refusal(RawSource& source, const std::string& target) {
  source.request.target = target;
  const auto laid_out = torch_format().writer->lay_out(source.request);
  return laid_out ? "" : laid_out.error().message;
}

TEST(TorchWriter, TwoValuesOfOneKeyAreRefusedNotDropped) {
  // State whose parameter is not known stands where the model would.
  RawSource source({{.name = "w", .shape = {4}}, {.name = "model", .shape = {2}, .role = Role::slot}});
  EXPECT_EQ(refusal(source, "out.pt"), "out.pt: 'model' and another value would have the same key in a torch file");
  for (const std::string name : {"other.x", "model.x"}) {  // the latter has a key of its own: no part of the model
    RawSource apart({{.name = "w", .shape = {4}}, {.name = name, .shape = {2}, .role = Role::slot}});
    EXPECT_EQ(refusal(apart, "out.pt"), "");
  }
}

TEST(TorchWriter, AnObjectWithoutAPlaceIsReportedAsLeftOut) {
  RawSource source({{.name = "w", .shape = {4}}});
  for (const std::string_view name : {"a", "a.b", "a"}) {
    Value value;
    value.v = std::string(name);
    source.request.objects.push_back({.name = std::string(name), .value = std::move(value)});
  }
  const Skeleton skeleton = source.lay_out(torch_format(), "out.pt");
  ASSERT_EQ(skeleton.dropped.size(), 1u);
  EXPECT_EQ(skeleton.dropped[0].skipped, Skipped::training_state);
  EXPECT_NE(skeleton.dropped[0].text.find("1 Python object"), std::string::npos) << skeleton.dropped[0].text;
}

TEST(TorchWriter, DimensionsAndStridesThatTorchHoldsSignedFitThere) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;
  for (const char* target : {"out.pt", "folder"}) {
    for (const Shape& shape : {Shape{2 * kHuge, 0}, Shape{0, UINT64_MAX}, Shape{0, kHuge, 2}}) {
      RawSource source({{.name = "q", .shape = shape}});
      EXPECT_EQ(refusal(source, target), "q: torch holds no dimension or stride of 2^63 or more");
    }
    RawSource largest({{.name = "q", .shape = {0, 2 * kHuge - 1}}});
    EXPECT_EQ(refusal(largest, target), "");
  }
}

TEST(TorchWriter, PairsOfFourBitsHaveAnEvenLastDimension) {
  for (const char* target : {"out.pt", "folder"}) {
    RawSource odd({{.name = "q", .dtype = Dtype::f4, .shape = {2, 3}}});
    EXPECT_EQ(refusal(odd, target), "q: torch stores F4 elements in pairs, but the last dimension is odd");
    RawSource even({{.name = "q", .dtype = Dtype::f4, .shape = {3, 2}}});
    EXPECT_EQ(refusal(even, target), "");
    RawSource six({{.name = "q", .dtype = Dtype::f6_e3m2, .shape = {4}}});
    EXPECT_EQ(refusal(six, target), "q: torch has no element type for F6_E3M2");
  }
}

}  // namespace
}  // namespace ckpt
