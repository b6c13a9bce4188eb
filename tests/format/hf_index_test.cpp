#include "format/files/hf_index.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ckpt::hf {
namespace {

std::string read(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(HfIndex, GivesTheFileOfEveryTensor) {
  const auto index = parse_index(
      R"({"metadata":{"total_size":12,"note":"x"},"weight_map":{"b":"m-2.safetensors","a":"sub/m-1.safetensors"}})");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->total_size, 12u);
  const std::vector<std::pair<std::string, std::string>> expected{{"b", "m-2.safetensors"},
                                                                  {"a", "sub/m-1.safetensors"}};
  EXPECT_EQ(index->weight_map, expected);
}

TEST(HfIndex, NeedsNoMetadataAndTakesAFloatTotal) {
  const auto bare = parse_index(R"({"weight_map":{}})");
  ASSERT_TRUE(bare);
  EXPECT_FALSE(bare->total_size);
  const auto real = parse_index(R"({"metadata":{"total_size":1.5e9},"weight_map":{}})");
  ASSERT_TRUE(real);
  EXPECT_FALSE(real->total_size);
}

TEST(HfIndex, RefusesPathsThatLeaveTheDirectory) {
  for (const std::string_view file :
       {"../x", "/etc/passwd", "a/../../x", "", ".", "..", "a//b", "./a", "a/", R"(a\u0000b)"}) {
    const auto index = parse_index("{\"weight_map\":{\"w\":\"" + std::string(file) + "\"}}");
    ASSERT_FALSE(index) << file;
    EXPECT_EQ(index.error().code, Errc::refused) << file;
    EXPECT_EQ(index.error().tensor, "w");
  }
}

TEST(HfIndex, RefusesWhatIsNoIndex) {
  for (const std::string_view text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
                                      R"({"weight_map":{"a":"f","a":"g"}})", R"({"weight_map":{"a":{"b":"c"}}})"}) {
    const auto index = parse_index(text);
    ASSERT_FALSE(index) << text;
    EXPECT_EQ(index.error().code, Errc::corrupt) << text;
  }
}

TEST(HfIndex, BuiltIndexReadsBackInNameOrder) {
  const Index index{.total_size = 7, .weight_map = {{"z\"", "f2"}, {"a", "f1"}}};
  const auto again = parse_index(build_index(index));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->total_size, 7u);
  const std::vector<std::pair<std::string, std::string>> expected{{"a", "f1"}, {"z\"", "f2"}};
  EXPECT_EQ(again->weight_map, expected);
  EXPECT_TRUE(parse_index(build_index({})));
}

TEST(HfIndex, LooksLikeTheOneOfTransformers) {
  const std::string genuine = read(CKPT_GOLDEN_DIR "/safetensors/llama_sharded/ckpt/model.safetensors.index.json");
  const auto index = parse_index(genuine);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->weight_map.size(), 30u);
  std::string built = build_index(*index);
  built.insert(built.find("    \"total_size\""), "    \"total_parameters\": 32032,\n");
  EXPECT_EQ(built, genuine);
}

TEST(HfIndex, BrokenFixtureThatEscapesIsRefused) {
  const auto index =
      parse_index(read(CKPT_GOLDEN_DIR "/broken/hf_index_path_escape/ckpt/model.safetensors.index.json"));
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Errc::refused);
}

}  // namespace
}  // namespace ckpt::hf
