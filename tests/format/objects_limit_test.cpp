#include <gtest/gtest.h>

#include <string>

#include "format/universal/objects.hpp"

namespace ckpt::universal {
namespace {

/// A list of `count` values, itself not counted.
std::string list_of(std::size_t count) {
  std::string text =
      R"({"format":"ckpt.objects","version":"0.9","id":"00000000000000000000000000000000","objects":[{"name":"a","value":[null)";
  text.reserve(text.size() + 5 * count);
  for (std::size_t i = 1; i < count; ++i) text += ",null";
  return text + "]}]}";
}

// Half a gigabyte of values: apart from the other tests of objects.
TEST(ObjectsLimit, AFileHoldsAtMostFourMillionValues) {
  EXPECT_TRUE(parse_objects(list_of(kMaxObjectValues - 1)));
  const auto over = parse_objects(list_of(kMaxObjectValues));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, Errc::unsupported) << "the limit is this build's, not the format's";
}

}  // namespace
}  // namespace ckpt::universal
