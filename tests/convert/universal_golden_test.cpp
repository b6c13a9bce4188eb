// Checkpoints of formats 0.9 and 1.0 stay readable, bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

#include "convert/formats.hpp"
#include "convert/open_source.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

class UniversalGolden : public testing::TestWithParam<const char*> {
 protected:
  const GoldenCase golden_ = load_golden(GetParam());
  const std::unique_ptr<Io> io_ = open_io(IoKind::threads).value();
};

TEST_P(UniversalGolden, HoldsTheTruth) {
  const auto map = universal_format().reader->open(*io_, golden_.root, {});
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_FALSE(golden_.truth.empty());
  for (const GoldenCase::Truth& truth : golden_.truth) {
    const auto alias =
        std::find_if(map->aliases.begin(), map->aliases.end(), [&](const Alias& a) { return a.name == truth.name; });
    const std::size_t tensor = find_tensor(*map, alias == map->aliases.end() ? truth.name : alias->target);
    ASSERT_LT(tensor, map->tensors.size()) << truth.name;
    EXPECT_EQ(map->tensors[tensor].dtype, truth.dtype) << truth.name;
    EXPECT_EQ(map->tensors[tensor].shape, truth.shape) << truth.name;
    EXPECT_EQ(gather(*map, golden_.root, tensor).bytes, truth.bytes) << truth.name;
  }
  EXPECT_EQ(map->meta.step, (*golden_.about)["step"].get<std::uint64_t>());
  EXPECT_EQ(map->meta.world_size, (*golden_.about)["world_size"].get<std::uint64_t>());
}

TEST_P(UniversalGolden, IsRecognisedAndSound) {
  const auto source = open_source(*io_, golden_.root, "", {});
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->format->name, "ckpt");
  const auto stored = universal_format().hashes(*io_, golden_.root);
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_TRUE(stored->findings.empty()) << stored->findings[0].text;
}

class UniversalGoldenOld : public UniversalGolden {};

/// The same text as format 1.0 writes it: nothing else has changed in what 0.9 could say.
std::string in_version_1(std::string text) {
  const std::string old = R"(\"format\":\"0.9\")";
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? text : text.replace(at, old.size(), R"(\"format\":\"1.0\")");
}

TEST_P(UniversalGoldenOld, IsWrittenAgainToTheByteButForTheVersion) {
  // Its own bytes are what a writer must give for what it holds; only what names the source differs.
  const auto map = universal_format().reader->open(*io_, golden_.root, {});
  ASSERT_TRUE(map) << map.error().message;
  WriteRequest request{.source = &*map, .aliases = map->aliases, .objects = map->objects, .id = map->id};
  request.shard_bytes = (*golden_.about)["shard_bytes"].get<std::uint64_t>();
  for (std::uint32_t i = 0; i < map->tensors.size(); ++i)
    request.tensors.push_back({i, map->tensors[i].name, map->tensors[i].dtype});
  const auto skeleton = universal_format().writer->lay_out(request);
  ASSERT_TRUE(skeleton) << skeleton.error().message;
  const auto stored = universal_format().hashes(*io_, golden_.root).value();
  ASSERT_EQ(skeleton->files.size(), stored.files.size());
  for (std::size_t i = 0; i < stored.files.size(); ++i) {
    const TargetFile& file = skeleton->files[i];
    EXPECT_EQ(file.path, stored.files[i].path);
    EXPECT_EQ(file.bytes, stored.files[i].bytes);
    const std::string& literal = file.placements.at(0).literal;
    const std::string written = read_small_file(*io_, join_path(golden_.root, file.path), 1u << 20).value();
    const bool objects = file.file_class == 3;
    const std::string head = written.substr(0, literal.size());
    EXPECT_EQ(objects ? std::string(head).replace(head.find("0.9"), 3, "1.0") : in_version_1(head), literal)
        << file.path;
  }
  const auto small = skeleton->finish(stored.leaves).value();
  const std::string sums = read_small_file(*io_, join_path(golden_.root, "sums.bin"), 1u << 20).value();
  EXPECT_EQ(small.at(1).bytes, std::string(sums).replace(8, 4, std::string("\1\0\0\0", 4)));
}

INSTANTIATE_TEST_SUITE_P(Cases, UniversalGolden, testing::Values("ckpt/0.9-small", "ckpt/0.9-tied", "ckpt/1.0-mesh"));
INSTANTIATE_TEST_SUITE_P(Cases, UniversalGoldenOld, testing::Values("ckpt/0.9-small", "ckpt/0.9-tied"));

}  // namespace
}  // namespace ckpt
