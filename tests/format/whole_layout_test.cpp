#include "format/universal/whole_layout.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ckpt::universal {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::vector<std::string_view> ordered(std::vector<Entry> entries) {
  order_entries(entries);
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return names;
}

TEST(WholeLayout, EntriesAreOrderedByAlignmentThenName) {
  EXPECT_EQ(
      ordered({{"odd", 3},
               {"page_b", 8192},
               {"empty", 0},
               {"page_a", 4096 * 7},
               {"half", 2048},
               {"scalar", 8},
               {"Zwei", 4096},
               {"also_scalar", 24}}),
      (std::vector<std::string_view>{"Zwei", "empty", "page_a", "page_b", "half", "also_scalar", "scalar", "odd"}));
}

std::vector<std::uint32_t> volumes(const std::vector<std::uint64_t>& mib, const VolumeLimits& limits,
                                   std::uint64_t header_bytes = 100) {
  std::vector<Candidate> candidates;
  for (const std::uint64_t size : mib) candidates.push_back({size * kMiB, header_bytes});
  return choose_volumes(candidates, limits).value();
}

using Volumes = std::vector<std::uint32_t>;

TEST(WholeLayout, AVolumeEndsBeforeTheGivenLimitHeaderIncluded) {
  const VolumeLimits ten{.file_bytes = 10 * kMiB, .smallest_bytes = 0, .header_bytes = 20'000'000};
  EXPECT_EQ(volumes({4, 5, 1, 1}, ten), (Volumes{0, 0, 1, 1}));  // 4 + 5 + 1 fill it, but the header needs 4096 more
  EXPECT_EQ(volumes({3, 3, 3, 3, 3, 3, 3}, ten), (Volumes{0, 0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(volumes({1, 30, 1}, ten), (Volumes{0, 1, 2}));  // alone, above the limit
  EXPECT_EQ(volumes({30, 30}, ten), (Volumes{0, 1}));       // and no empty volume before it
  EXPECT_EQ(volumes({}, ten), (Volumes{}));
}

TEST(WholeLayout, WithoutALimitNoFileIsBelow256MiB) {
  const std::uint64_t gib = 1024;
  EXPECT_EQ(volumes({10 * gib, 5 * gib, 2 * gib, 300}, kDefaultVolumes), (Volumes{0, 0, 1, 1}));
  EXPECT_EQ(volumes({10 * gib, 5 * gib, 2 * gib}, kDefaultVolumes), (Volumes{0, 0, 1}));
  EXPECT_EQ(volumes({15 * gib, gib, 100, 100}, kDefaultVolumes), (Volumes{0, 1, 1, 1}));
  EXPECT_EQ(volumes({15 * gib + 900, 100, 100}, kDefaultVolumes), (Volumes{0, 0, 0}));  // too little to come
  EXPECT_EQ(volumes({100, 17 * gib, gib}, kDefaultVolumes), (Volumes{0, 0, 1}));        // too little before
}

TEST(WholeLayout, AVolumeEndsBeforeItsHeaderGrowsTooLong) {
  EXPECT_EQ(volumes({1, 1, 1}, kDefaultVolumes, 9'000'000), (Volumes{0, 0, 1}));
  EXPECT_EQ(volumes({1, 1}, kDefaultVolumes, 90'000'000), (Volumes{0, 1}));
}

TEST(WholeLayout, SizesThatOverflowAreCorrupt) {
  const std::vector<Candidate> candidates{{std::uint64_t{1} << 63, 1}, {std::uint64_t{1} << 63, 1}};
  EXPECT_FALSE(choose_volumes(candidates, kDefaultVolumes));
}

TensorRow row(std::string name, std::uint64_t bytes, Role role = Role::param, std::uint32_t volume = 0) {
  TensorRow out;
  out.tensor.name = std::move(name);
  out.tensor.dtype = Dtype::u8;
  out.tensor.shape = {bytes};
  out.tensor.role = role;
  out.volume = volume;
  return out;
}

/// Two volumes of weights and one of blobs, and objects between nothing.
struct Sample {
  Manifest manifest{};
  Sums sums{};

  Sample() {
    manifest.tensors = {
        row("a", 3), row("b", 8), row("c", 4096), row("d", 5, Role::buffer, 7), row("e", 0), row("f", 9, Role::blob)};
    sums.files = {{.key = {FileClass::weights, 0, 0}, .bytes = 4096 + 4096 + 8 + 3, .data_begin = 4096},
                  {.key = {FileClass::weights, 0, 7}, .bytes = 8192 + 5, .data_begin = 8192},
                  {.key = {FileClass::blobs, 0, 0}, .bytes = 4096 + 9, .data_begin = 4096},
                  {.key = {FileClass::objects, 0, 0}, .bytes = 100}};
  }

  void expect_corrupt(const std::string& file, const std::string& tensor = {}) const {
    const auto places = place_whole(manifest, sums);
    ASSERT_FALSE(places);
    EXPECT_EQ(places.error().code, Errc::corrupt);
    EXPECT_EQ(places.error().file, file) << places.error().message;
    EXPECT_EQ(places.error().tensor, tensor) << places.error().message;
  }
};

TEST(WholeLayout, PlacesFollowFromRowsAndRecords) {
  const Sample sample;
  const auto places = place_whole(sample.manifest, sample.sums);
  ASSERT_TRUE(places) << places.error().message;
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> expected{
      {0, 4096 + 4096 + 8}, {0, 4096 + 4096}, {0, 4096}, {1, 8192}, {0, 4096 + 4096}, {2, 4096}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((*places)[i].file, expected[i].first) << i;
    EXPECT_EQ((*places)[i].offset, expected[i].second) << i;
  }
}

TEST(WholeLayout, AFileOfAnotherSizeThanItsTensorsIsCorrupt) {
  for (const int change : {-1, 1}) {
    Sample sample;
    sample.sums.files[0].bytes += static_cast<std::uint64_t>(change);
    sample.expect_corrupt("shards/weights/00000-00000.safetensors");
  }
}

TEST(WholeLayout, AFileWithoutTensorsIsCorrupt) {
  Sample volume;
  volume.sums.files.insert(volume.sums.files.begin() + 1,
                           {.key = {FileClass::weights, 0, 3}, .bytes = 4096, .data_begin = 4096});
  volume.expect_corrupt("shards/weights/00000-00003.safetensors");
  Sample writer;
  writer.sums.files.insert(writer.sums.files.begin() + 2,
                           {.key = {FileClass::weights, 1, 0}, .bytes = 4096, .data_begin = 4096});
  writer.expect_corrupt("shards/weights/00001-00000.safetensors");
}

TEST(WholeLayout, ATensorWithoutAFileIsCorrupt) {
  for (const auto& [name, role, volume] : std::vector<std::tuple<std::string, Role, std::uint32_t>>{
           {"x", Role::param, 1}, {"x", Role::slot, 0}, {"x", Role::blob, 9}}) {
    Sample sample;
    sample.manifest.tensors.push_back(row(name, 1, role, volume));
    sample.expect_corrupt("", "x");
  }
}

}  // namespace
}  // namespace ckpt::universal
