#include "format/torch/dcp_metadata.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "support/dcp_build.hpp"

namespace ckpt::dcp {
namespace {

using dcp_build::Style;

Result<Metadata> parse(const std::string& pickle) {
  return parse_metadata(std::as_bytes(std::span(pickle)));
}
Result<Metadata> parse(const std::vector<dcp_build::Entry>& entries, const Style& style = {}) {
  return parse(dcp_build::metadata(entries, style));
}

/// Two rows of a (4, 6) matrix each, the lower ones in the first file; and an object.
std::vector<dcp_build::Entry> two_halves() {
  return {{.fqn = "model.w",
           .shape = {4, 6},
           .chunks = {{{2, 0}, {2, 6}}, {{0, 0}, {2, 6}}},
           .records = {{Shape{2, 0}, {"__0_0.distcp", 100, 50, {}}}, {Shape{0, 0}, {"__1_0.distcp", 0, 70, {}}}},
           .path = Path{"model", "w"}},
          {.fqn = "cfg.deep.1",
           .is_tensor = false,
           .records = {{std::nullopt, {"__0_0.distcp", 0, 100, {}}}},
           .path = Path{"cfg", "deep", std::int64_t{1}}}};
}

void expect_corrupt(const std::vector<dcp_build::Entry>& entries, const std::string& tensor) {
  const auto parsed = parse(entries);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, Errc::corrupt) << parsed.error().message;
  EXPECT_EQ(parsed.error().tensor, tensor) << parsed.error().message;
}

TEST(DcpMetadata, JoinsChunksWithTheirRecordsInRowMajorOrder) {
  const auto parsed = parse(two_halves());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->entries.size(), 2u);
  const Entry& w = parsed->entries[0];
  EXPECT_EQ(w.fqn, "model.w");
  EXPECT_EQ(w.path, (Path{"model", "w"}));
  EXPECT_EQ(parsed->dtypes[w.dtype], "float32");
  EXPECT_EQ(w.shape, (Shape{4, 6}));
  ASSERT_EQ(w.item_count, 2u);
  EXPECT_EQ(parsed->box(w, 0), (Box{{0, 0}, {2, 6}}));
  EXPECT_EQ(parsed->files[parsed->item_file[0]].path, "__1_0.distcp");
  EXPECT_EQ(parsed->item_length[0], 70u);
  EXPECT_EQ(parsed->box(w, 1), (Box{{2, 0}, {2, 6}}));
  EXPECT_EQ(parsed->item_offset[1], 100u);

  const Entry& object = parsed->entries[1];
  EXPECT_FALSE(object.is_tensor);
  EXPECT_EQ(object.path, (Path{"cfg", "deep", std::int64_t{1}}));
  EXPECT_EQ(parsed->item_length[object.first_item], 100u);
  EXPECT_EQ(parsed->files[parsed->item_file[object.first_item]].end, 150u);
}

TEST(DcpMetadata, EveryReleaseAndPythonGivesTheSame) {
  const std::string old = "torch.distributed._shard.sharded_tensor.metadata";
  const std::vector<Style> styles{
      {.protocol = 2},
      {.protocol = 3},
      {.protocol = 4},
      {.protocol = 5},
      {.properties_module = old, .with_version = false},
      {.protocol = 2,
       .metadata_module = "torch.distributed._shard.checkpoint.metadata",
       .properties_module = old,
       .filesystem_module = "torch.distributed._shard.checkpoint.filesystem",
       .with_storage_meta = false,
       .with_version = false},
      {.enum_by_value = false, .path_module = "pathlib._local"},
  };
  for (std::size_t i = 0; i < styles.size(); ++i) {
    const auto parsed = parse(two_halves(), styles[i]);
    ASSERT_TRUE(parsed.has_value()) << i << ": " << parsed.error().message;
    EXPECT_EQ(parsed->entries[0].item_count, 2u) << i;
    EXPECT_EQ(parsed->version, styles[i].with_version ? "1.0.0" : "") << i;
  }
}

TEST(DcpMetadata, WithoutPlannerDataPathsAreEmpty) {
  const auto parsed = parse(two_halves(), {.with_planner_data = false});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_TRUE(parsed->entries[1].path.empty());
}

TEST(DcpMetadata, PathThatDoesNotJoinToItsKeyIsDropped) {
  auto entries = two_halves();
  entries[0].path = Path{"model", "other"};
  const auto parsed = parse(entries);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_TRUE(parsed->entries[0].path.empty());
}

TEST(DcpMetadata, EmptyChunksGiveNoItemAndMayShareAnOffset) {
  std::vector<dcp_build::Entry> entries{{.fqn = "w",
                                         .shape = {3},
                                         .chunks = {{{0}, {3}}, {{3}, {0}}, {{0}, {0}}},
                                         .records = {{Shape{0}, {}}, {Shape{3}, {}}}}};
  const auto parsed = parse(entries);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->entries[0].item_count, 1u);
  EXPECT_EQ(parsed->box(parsed->entries[0], 0), (Box{{0}, {3}}));
}

TEST(DcpMetadata, ScalarHasOneItem) {
  const auto parsed = parse({{.fqn = "s", .chunks = {{{}, {}}}, .records = {{Shape{}, {}}}}});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->entries[0].item_count, 1u);
}

TEST(DcpMetadata, ReplicasAreItemsOfTheirOwn) {
  auto entries = two_halves();
  entries[0].records.push_back({Shape{2, 0}, {"__3_0.distcp", 7, 50, {}}});
  const auto parsed = parse(entries);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->entries[0].item_count, 3u);
  EXPECT_EQ(parsed->box(parsed->entries[0], 1), parsed->box(parsed->entries[0], 2));
  EXPECT_EQ(parsed->item_offset[1] + parsed->item_offset[2], 107u);
}

TEST(DcpMetadata, DimensionsOver32BitsKeepTheirBounds) {
  const std::uint64_t n = std::uint64_t{1} << 40;
  const auto parsed = parse({{.fqn = "w",
                              .dtype = "uint8",
                              .shape = {n},
                              .chunks = {{{n - 5}, {5}}, {{0}, {n - 5}}},
                              .records = {{Shape{n - 5}, {}}, {Shape{0}, {}}}},
                             {.fqn = "v", .shape = {2}, .chunks = {{{0}, {2}}}, .records = {{Shape{0}, {}}}}});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->box(parsed->entries[0], 1), (Box{{n - 5}, {5}}));
  EXPECT_EQ(parsed->box(parsed->entries[1], 2), (Box{{0}, {2}}));
}

TEST(DcpMetadata, TransformsAreThoseOfEveryItemOrUnsupported) {
  auto entries = two_halves();
  for (auto& entry : entries) {
    for (auto& record : entry.records) record.second.transforms = {"stream.zstd/1"};
  }
  const auto parsed = parse(entries);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->transforms, std::vector<std::string>{"stream.zstd/1"});

  entries[0].records[0].second.transforms.clear();
  const auto mixed = parse(entries);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_EQ(mixed.error().code, Errc::unsupported) << mixed.error().message;
}

TEST(DcpMetadata, SparseLayoutsAreUnsupportedByName) {
  auto entries = two_halves();
  entries[0].layout = "sparse_coo";
  const auto parsed = parse(entries);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, Errc::unsupported) << parsed.error().message;
  EXPECT_EQ(parsed.error().tensor, entries[0].fqn);
  EXPECT_NE(parsed.error().message.find("torch.sparse_coo"), std::string::npos) << parsed.error().message;
}

TEST(DcpMetadata, ChunkOutsideItsTensorIsCorrupt) {
  auto entries = two_halves();
  entries[0].chunks[0].size = {3, 6};
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, ChunkOfAnotherRankIsCorrupt) {
  auto entries = two_halves();
  entries[0].chunks[0] = {{2}, {2}};
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, NegativeSizeIsCorrupt) {
  auto entries = two_halves();
  entries[0].chunks[0].offset = {static_cast<std::uint64_t>(-1), 0};
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, ShapeWhoseBytesOverflowIsCorrupt) {
  const std::uint64_t n = std::uint64_t{1} << 31;
  expect_corrupt({{.fqn = "w", .shape = {n, n}, .chunks = {{{0, 0}, {n, n}}}, .records = {{Shape{0, 0}, {}}}}}, "w");
}

TEST(DcpMetadata, ChunkWithoutRecordIsCorrupt) {
  auto entries = two_halves();
  entries[0].records.pop_back();
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, RecordWithoutChunkIsCorrupt) {
  auto entries = two_halves();
  entries[0].records[0].first = Shape{1, 0};
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, RecordWithoutOffsetIsTakenOnlyForASingleChunk) {
  auto entries = two_halves();
  entries[0].records[0].first.reset();
  expect_corrupt(entries, "model.w");
  const auto parsed = parse({{.fqn = "w", .shape = {2}, .chunks = {{{0}, {2}}}, .records = {{std::nullopt, {}}}}});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->entries[0].item_count, 1u);
}

TEST(DcpMetadata, TwoBoxesWithOneOffsetAreCorrupt) {
  auto entries = two_halves();
  entries[0].chunks.push_back({{2, 0}, {1, 6}});
  expect_corrupt(entries, "model.w");
}

TEST(DcpMetadata, BytesStoredTwiceOrNeverAreCorrupt) {
  auto entries = two_halves();
  entries[1].records.push_back(entries[1].records[0]);
  expect_corrupt(entries, "cfg.deep.1");
  entries[1].records.clear();
  expect_corrupt(entries, "cfg.deep.1");
}

TEST(DcpMetadata, KeyThatStandsTwiceIsCorrupt) {
  auto entries = two_halves();
  entries.push_back(entries[1]);
  expect_corrupt(entries, "cfg.deep.1");
}

TEST(DcpMetadata, DataFileOutsideTheCheckpointIsRefused) {
  for (const char* path : {"../x.distcp", "/x.distcp", "a/../../x", "", "a//b", "./a"}) {
    auto entries = two_halves();
    entries[0].records[1].second.file = path;
    const auto parsed = parse(entries);
    ASSERT_FALSE(parsed.has_value()) << path;
    EXPECT_EQ(parsed.error().code, Errc::refused) << path;
  }
}

TEST(DcpMetadata, AnotherPickleIsCorrupt) {
  const auto parsed = parse(dcp_build::integer_pickle(7));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, Errc::corrupt);
}

TEST(DcpMetadata, EveryPrefixOfAGenuineFileIsCorrupt) {
  std::ifstream in(std::string(CKPT_GOLDEN_DIR) + "/torch/dcp_plain/ckpt/.metadata", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  ASSERT_TRUE(parse(whole).has_value());
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    const auto parsed = parse(whole.substr(0, bytes));
    ASSERT_FALSE(parsed.has_value()) << bytes;
    EXPECT_EQ(parsed.error().code, Errc::corrupt) << bytes;
  }
}

}  // namespace
}  // namespace ckpt::dcp
