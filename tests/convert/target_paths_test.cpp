#include "convert/target_paths.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ckpt {
namespace {

std::string refusal(std::vector<std::string> paths, std::vector<std::string> small = {}) {
  Skeleton skeleton{.small_names = std::move(small)};
  for (std::string& path : paths) skeleton.files.push_back({.path = std::move(path)});
  const auto checked = check_target_paths(skeleton, "out");
  if (checked) return "";
  EXPECT_EQ(checked.error().code, Errc::unsupported);
  return checked.error().message;
}

TEST(TargetPaths, NamesThatNoFileHasAreRefused) {
  EXPECT_EQ(refusal({"a", "b/c", "b/d", ".metadata", std::string(255, 'n'), "a b\n"}, {"latest"}), "");
  EXPECT_EQ(refusal({""}), "out: no file can be named '': it is empty");
  EXPECT_EQ(refusal({"/abs"}), "out: no file can be named '/abs': it is empty");
  EXPECT_EQ(refusal({"a//b"}), "out: no file can be named 'a//b': it is empty");
  EXPECT_EQ(refusal({"a/"}), "out: no file can be named 'a/': it is empty");
  EXPECT_EQ(refusal({"a/../b"}), "out: no file can be named 'a/../b': it means a folder");
  EXPECT_EQ(refusal({"./a"}), "out: no file can be named './a': it means a folder");
  EXPECT_NE(refusal({std::string("a\0b", 3)}).find("it has a NUL character"), std::string::npos);
  EXPECT_NE(refusal({"a/" + std::string(256, 'n') + "/b"}).find("it is longer than 255 bytes"), std::string::npos);
}

TEST(TargetPaths, EachFileHasANameOfItsOwn) {
  EXPECT_EQ(refusal({"a", "b", "a"}), "out: no file can be named 'a': another file has that name");
  EXPECT_EQ(refusal({"latest"}, {"latest"}), "out: no file can be named 'latest': another file has that name");
  EXPECT_EQ(refusal({"a/b", "a"}), "out: no file can be named 'a': a folder has that name");
  EXPECT_EQ(refusal({"latest/a"}, {"latest"}), "out: no file can be named 'latest': a folder has that name");
}

TEST(TargetPaths, ASingleFileHasNone) {
  Skeleton skeleton{.directory = false};
  skeleton.files.push_back({.path = ""});
  EXPECT_TRUE(check_target_paths(skeleton, "out").has_value());
}

}  // namespace
}  // namespace ckpt
