#include "format/model/value.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(Name, DottedJoinsKeysAndIndices) {
  EXPECT_EQ(dotted({std::string("a"), std::int64_t{3}, std::string("b.c")}), "a.3.b.c");
  EXPECT_EQ(dotted({}), "");
}

TEST(Name, EscapingKeepsDifferentPathsApart) {
  EXPECT_EQ(dotted_escaped({std::string("a.b")}), "a%2Eb");
  EXPECT_EQ(dotted_escaped({std::string("a"), std::string("b")}), "a.b");
  EXPECT_EQ(dotted_escaped({std::string("50%")}), "50%25");
  EXPECT_EQ(dotted_escaped({std::string("gr\xc3\xbc\xc3\x9f")}), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(dotted_escaped({std::string("\xff\xed\xa0\x80")}), "%FF%ED%A0%80");  // not UTF-8: a stray byte, a surrogate
}

TEST(Name, TellsWhetherANameSplitsBackIntoItsPath) {
  EXPECT_TRUE(splits_to("a.b", {std::string("a"), std::string("b")}));
  EXPECT_FALSE(splits_to("a.b", {std::string("a.b")}));
  EXPECT_FALSE(splits_to("a.0", {std::string("a"), std::int64_t{0}}));
  EXPECT_FALSE(splits_to("a", {std::string("a"), std::string("b")}));
}

}  // namespace
}  // namespace ckpt
