#include <gtest/gtest.h>

#include <string>

#include "format/hash.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt::universal {
namespace {

Manifest with_two() {
  Manifest out;
  out.created = utc_text(0);
  out.generator = "test";
  out.tensors = {{.tensor = {.name = "extras/a.json", .dtype = Dtype::u8, .shape = {2}, .role = Role::blob}},
                 {.tensor = {.name = "extras/b.py", .dtype = Dtype::u8, .shape = {3}, .role = Role::blob}},
                 {.tensor = {.name = "w", .dtype = Dtype::f32, .shape = {1}}}};
  out.extras = {{"a.json", "extras/a.json"}, {"b.py", "extras/b.py"}};
  return out;
}

/// The manifest with another text in it, sealed again.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
  const std::size_t seal = text.rfind("\"xxh3\":\"") + 8;
  return text.substr(0, seal) + hash128(std::string_view(text).substr(0, seal)).hex() + text.substr(seal + 32);
}

TEST(ManifestExtras, AreReadBack) {
  const auto text = build_manifest(with_two());
  ASSERT_TRUE(text.has_value());
  const auto read = parse_manifest(*text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->extras, with_two().extras);
  EXPECT_EQ(read->optional_features, std::vector<std::string>{"extras"});
  EXPECT_EQ(build_manifest(*read), *text);
}

TEST(ManifestExtras, ARowThatIsNotSoundIsNone) {
  const std::string text = build_manifest(with_two()).value();
  for (const char* path : {"../a.json", "/etc/a.json", "model.safetensors", "sub/a.json", "manifest.json", "c.json", "",
                           ".a.json", "a.json/..", "pytorch_model.bin"}) {
    const auto read = parse_manifest(changed(text, R"({"path":"a.json")", std::string(R"({"path":")") + path + "\""));
    ASSERT_TRUE(read.has_value()) << path;
    EXPECT_EQ(read->extras.size(), 1u) << path;
  }
  for (const char* blob : {"w", "extras/none", ""}) {
    const auto read =
        parse_manifest(changed(text, R"("blob":"extras/a.json")", std::string(R"("blob":")") + blob + "\""));
    ASSERT_TRUE(read.has_value()) << blob;
    EXPECT_EQ(read->extras, std::vector<Manifest::ExtraRow>({{"b.py", "extras/b.py"}})) << blob;
  }
  const auto no_feature = parse_manifest(changed(text, R"("optional":["extras"])", R"("optional":[])"));
  ASSERT_TRUE(no_feature.has_value());
  EXPECT_TRUE(no_feature->extras.empty());
}

}  // namespace
}  // namespace ckpt::universal
