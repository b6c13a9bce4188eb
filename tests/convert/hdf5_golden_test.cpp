// HDF5 files that h5py and Keras wrote: every dataset equals its truth, bit for bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

Result<Map> open_hdf5(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return hdf5_format().reader->open(**io, root, {});
}

std::string with_dots(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// The tensor's bytes by plain reads: it is one chunk, of the source or of the temporary file.
std::string bytes_of(const Map& map, const std::string& root, std::size_t index) {
  const Tensor& tensor = map.tensors[index];
  std::string out;
  const auto visited = map.index->chunks(index, {0, volume(tensor.shape)}, [&](const PlacedChunk& placed) -> Result<> {
    EXPECT_EQ(placed.chunk.volume(), volume(tensor.shape));
    const std::string& file = map.files[placed.where.file].path;
    const std::string whole = test::read_file(file.starts_with('/') ? file : root + "/" + file);
    out = whole.substr(placed.where.offset, tensor_bytes(tensor.dtype, tensor.shape).value());
    const std::size_t unit = dtype_bits(tensor.dtype) / 8;
    for (std::size_t at = 0; placed.where.big_endian && at < out.size(); at += unit)
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(at), out.begin() + static_cast<std::ptrdiff_t>(at + unit));
    return {};
  });
  EXPECT_TRUE(visited) << visited.error().message;
  return out;
}

class Hdf5Golden : public testing::TestWithParam<const char*> {};

TEST_P(Hdf5Golden, EveryDatasetEqualsTheTruth) {
  const GoldenCase golden = load_golden(std::string("hdf5/") + GetParam());
  const auto map = open_hdf5(golden.root);
  ASSERT_TRUE(map) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered) << covered.error().message;
  ASSERT_FALSE(golden.truth.empty());
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t index = find_tensor(*map, with_dots(truth.name));
    ASSERT_LT(index, map->tensors.size());
    EXPECT_EQ(map->tensors[index].dtype, truth.dtype);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    EXPECT_TRUE(bytes_of(*map, golden.root, index) == truth.bytes);
  }
}

TEST_P(Hdf5Golden, LinksAreFurtherNamesAndTheStepIsTold) {
  const GoldenCase golden = load_golden(std::string("hdf5/") + GetParam());
  const auto map = open_hdf5(golden.root);
  ASSERT_TRUE(map) << map.error().message;
  std::size_t wanted = 0;
  for (const auto& [name, target] : golden.about->at("aliases").items()) {
    ++wanted;
    const Alias expected{.name = name, .target = with_dots(target.get<std::string>())};
    EXPECT_TRUE(std::any_of(map->aliases.begin(), map->aliases.end(), [&](const Alias& alias) {
      return alias.name == expected.name && alias.target == expected.target;
    })) << expected.name;
  }
  EXPECT_EQ(map->aliases.size(), wanted);
  const auto& step = golden.about->at("step");
  EXPECT_EQ(map->meta.step.has_value(), !step.is_null());
  if (!step.is_null()) {
    EXPECT_EQ(*map->meta.step, step.get<std::uint64_t>());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Hdf5Golden,
                         testing::Values("plain_groups", "latest_format", "chunked_filters", "keras3_weights",
                                         "keras3_model"),
                         [](const auto& name) { return name.param; });

TEST(Hdf5, WhatHasNoTypeHereIsNamedNotGuessed) {
  const auto map = open_hdf5(golden_root("hdf5/plain_groups"));
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_TRUE(std::any_of(map->findings.begin(), map->findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::warning && finding.text == "/text: a dataset of text: left out";
  }));
}

TEST(Hdf5, AFileThatIsCutIsCorruptAndNamed) {
  const auto map = open_hdf5(golden_root("broken/hdf5_truncated"));
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::corrupt) << map.error().message;
  EXPECT_NE(map.error().file.find("file.h5"), std::string::npos);
}

TEST(Hdf5, AnyByteThatIsFlippedGivesAnErrorOrAMap) {
  const TempDir directory(memory_temp_dir());
  const std::string bytes = test::read_file(golden_root("hdf5/latest_format") + "/file.h5");
  const std::string path = directory.path() + "/x.h5";
  for (std::size_t at = 0; at < bytes.size(); at += 61) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    test::write_file(path, damaged);
    const auto map = open_hdf5(path);
    if (!map) {
      EXPECT_TRUE(map.error().code == Errc::corrupt || map.error().code == Errc::refused ||
                  map.error().code == Errc::unsupported)
          << map.error().message;
    }
  }
}

}  // namespace
}  // namespace ckpt
