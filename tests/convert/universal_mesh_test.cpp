// A checkpoint of several writers, damaged in every part that makes it one.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "convert/universal/writer_files.hpp"
#include "format/universal/index_file.hpp"
#include "format/universal/placements.hpp"
#include "format/universal/seal.hpp"
#include "support/golden.hpp"
#include "support/mesh_checkpoint.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using namespace universal;

constexpr const char* kIndex = "index/00001.bin";
constexpr const char* kShard = "shards/weights/00001-00000.safetensors";

/// Four writers: `flat` by elements, `odd` irregular (at writers 1 and 2), `rows` by rows.
test::MeshCheckpoint sample() {
  std::mt19937_64 random(1);
  test::MeshCheckpoint out;
  out.manifest.id = hash128("mesh");
  out.manifest.created = utc_text(0);
  const Layout on = placement::replicated({{{"dp", 4}}});
  out.manifest.layouts = {placement::fsdp_shard(on, 0, {0}).value(),
                          placement::flat_parts(on, {0}, 5).value(),
                          {.kind = Layout::Kind::irregular}};
  out.add({.name = "flat", .dtype = Dtype::f32, .shape = {4, 4}}, 1, 3, random);
  out.add({.name = "odd", .dtype = Dtype::f32, .shape = {4, 6}}, 2, 0, random);
  out.add({.name = "rows", .dtype = Dtype::bf16, .shape = {8, 3}}, 0, 0, random);
  out.irregular[1] = {{1, {{.box = {{0, 0}, {4, 5}}}}}};
  out.irregular[2] = {{1, {{.box = {{0, 5}, {4, 1}}}}}};
  return out;
}

class UniversalMesh : public testing::Test {
 protected:
  UniversalMesh() { test::write_mesh_checkpoint(sample_, root()); }

  std::string root() const { return dir_.path() + "/x"; }
  std::string at(const std::string& path) const { return root() + "/" + path; }
  Result<Map> open() const { return universal_format().reader->open(*io_, root(), {}); }
  Sums sums() const {
    const std::string bytes = slurp(at("sums.bin"));
    return parse_sums(std::as_bytes(std::span(bytes))).value();
  }
  /// Writes manifest and sums.bin for what a test made of them, with right hashes.
  void seal_again(const Manifest& manifest, const Sums& sums) const {
    const Seal sealed = seal(manifest, sums.files, sums.leaves).value();
    spill(at("sums.bin"), sealed.sums);
    spill(at("index/manifest.json"), sealed.manifest);
    spill(at("manifest.json"), sealed.manifest);
  }
  /// Replaces a small file, and its hash in sums.bin.
  void replace_file(const std::string& path, const std::string& bytes) const {
    spill(at(path), bytes);
    Sums changed = sums();
    for (FileRecord& file : changed.files) {
      if (file.key.path() != path) continue;
      file.bytes = bytes.size();
      changed.leaves[file.first_leaf] = hash128(bytes);
    }
    seal_again(sample_.manifest, changed);
  }
  std::vector<Finding> findings() const {
    const auto stored = universal_format().hashes(*io_, root());
    EXPECT_TRUE(stored.has_value()) << (stored ? "" : stored.error().message);
    return stored ? stored->findings : std::vector<Finding>{};
  }
  std::vector<Shape> shapes() const {
    std::vector<Shape> out;
    for (const TensorRow& row : sample_.manifest.tensors) out.push_back(row.tensor.shape);
    return out;
  }
  IndexFile index() const {
    const std::string bytes = slurp(at(kIndex));
    return parse_index_file(std::as_bytes(std::span(bytes)), shapes()).value();
  }
  void expect_corrupt(const std::string& reason) const {
    const auto map = open();
    ASSERT_FALSE(map) << reason;
    EXPECT_EQ(exit_code(map.error().code), 15) << map.error().message;
    EXPECT_NE(map.error().message.find(reason), std::string::npos) << map.error().message;
  }

  const test::MeshCheckpoint sample_ = sample();
  TempDir dir_{};
  std::unique_ptr<Io> io_ = open_io(IoKind::threads).value();
};

TEST_F(UniversalMesh, AnIndexedPartWhoseRowsShareBytesWithAnotherIsCorrupt) {
  // Two columns of four rows: two whole bytes each in sum, but every row's byte is theirs together.
  WriterFiles::Parts parts{.rows = {{.tensor = {.name = "w", .dtype = Dtype::f4, .shape = {4, 2}}}},
                           .layouts = {{.kind = Layout::Kind::irregular}}};
  for (std::uint32_t writer = 0; writer < 2; ++writer) {
    parts.files.push_back({.key = {FileClass::weights, writer, 0}, .bytes = 4098, .data_begin = 4096});
    parts.irregular[writer] = {.writer = writer, .chunks = {{.chunk = {.box = {{0, writer}, {4, 1}}}, .offset = 4096}}};
  }
  const auto made = WriterFiles::make(std::move(parts));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::corrupt);
}

TEST_F(UniversalMesh, ReadsBackAndVerifies) {
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(gather(*map, root(), i).bytes, sample_.bytes[i]) << i;
  EXPECT_TRUE(findings().empty());
}

TEST_F(UniversalMesh, RowsOfAnotherShapeHaveNoRoom) {
  Manifest longer = sample_.manifest;
  longer.tensors[2].tensor.shape = {9, 3};
  seal_again(longer, sums());
  expect_corrupt("bytes of tensors, but the manifest needs");
}

TEST_F(UniversalMesh, AnotherLayoutOfTheSameBytesIsFoundWhereAFileIsUsed) {
  Manifest moved = sample_.manifest;
  moved.tensors[0].begin = 2;  // 3, 5, 5, 3 elements instead of 2, 5, 5, 4
  seal_again(moved, sums());
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  const auto read = map->index->chunks(2, {0, 24}, [](const PlacedChunk&) -> Result<> { return {}; });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::corrupt);
  EXPECT_EQ(read.error().file, "shards/weights/00000-00000.safetensors");
  EXPECT_FALSE(findings().empty());
}

TEST_F(UniversalMesh, AManifestThatAsksForAMillionWritersFailsAtTheFirstThatIsNotThere) {
  Manifest hostile = sample_.manifest;
  hostile.layouts[0].mesh.axes[0].size = kMaxWriters;
  hostile.layouts[1].mesh.axes[0].size = kMaxWriters;
  hostile.layouts[1].flat->part = 1;
  seal_again(hostile, sums());
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  for (const std::uint32_t tensor : {0u, 2u}) {
    const auto covered = check_coverage(*map, {&tensor, 1});
    ASSERT_FALSE(covered);
    EXPECT_EQ(covered.error().code, Errc::corrupt);
    EXPECT_NE(covered.error().message.find("not listed in sums.bin"), std::string::npos) << covered.error().message;
  }
}

TEST_F(UniversalMesh, AMissingIndexFileLeavesItsChunksUncovered) {
  fs::remove(at(kIndex));
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::incomplete);
  const std::vector<std::uint32_t> odd{1};
  const auto covered = check_coverage(*map, odd);
  ASSERT_FALSE(covered);
  EXPECT_EQ(covered.error().code, Errc::uncovered);
}

TEST_F(UniversalMesh, AnIndexFileIsReadOnlyWithItsHash) {
  std::string bytes = slurp(at(kIndex));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  spill(at(kIndex), bytes);
  const auto map = open();
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::checksum);
  EXPECT_EQ(map.error().file, at(kIndex));
}

TEST_F(UniversalMesh, AnIndexFileOfAnotherWriterOrCheckpointIsCorrupt) {
  IndexFile other = index();
  other.writer = 2;
  replace_file(kIndex, build_index_file(other, shapes()).value());
  expect_corrupt("another checkpoint or writer");
  other.writer = 1;
  other.id = hash128("other");
  replace_file(kIndex, build_index_file(other, shapes()).value());
  expect_corrupt("another checkpoint or writer");
}

TEST_F(UniversalMesh, AnIndexFileMustKeepToItsFilesAndRows) {
  IndexFile outside = index();
  outside.chunks[0].offset += 4;
  replace_file(kIndex, build_index_file(outside, shapes()).value());
  // The chunk is followed by those of the other rows, so it still lies in its file: verifying finds it.
  ASSERT_TRUE(open());
  const auto found = findings();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].severity, Severity::damage);
  EXPECT_EQ(found[0].file, at(kIndex));
  EXPECT_EQ(found[0].tensor, "odd");
  outside.chunks[0].offset += 1 << 20;
  replace_file(kIndex, build_index_file(outside, shapes()).value());
  expect_corrupt("is outside the file");
  IndexFile wrong = index();
  wrong.chunks[0] = {.row = 2, .chunk = {.box = {{0, 0}, {1, 3}}}, .offset = 4096};
  replace_file(kIndex, build_index_file(wrong, shapes()).value());
  expect_corrupt("not in an irregular layout");
}

TEST_F(UniversalMesh, AHeaderThatMovesAPartIsDamage) {
  const std::string good = slurp(at(kShard));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{R"(\"saved_offsets\":[2,0])", R"(\"saved_offsets\":[4,0])"},
                                                        {R"(DCP_SHARDING_INFO)", R"(DCP_SHARDING_INFX)"},
                                                        {R"(,\"dcp_readable\":false)", R"(,\"dcp_readable\":true )"},
                                                        {R"([2,3])", R"([3,2])"}}) {
    std::string bad = good;
    const std::size_t found = bad.find(from);
    ASSERT_NE(found, std::string::npos) << from;
    spill(at(kShard), bad.replace(found, from.size(), to));
    const auto damage = findings();
    ASSERT_EQ(damage.size(), 1u) << from;
    EXPECT_EQ(damage[0].severity, Severity::damage);
    EXPECT_EQ(damage[0].file, at(kShard)) << from;
  }
}

TEST(WriterFiles, KeepsNoMoreThanItsBoundAndStillAnswers) {
  std::mt19937_64 random(3);
  const Layout on = placement::replicated({{{"dp", 64}}});
  WriterFiles::Parts parts;
  parts.layouts = {placement::even_shard(on, 0, {0}).value()};
  for (int i = 0; i < 10; ++i) {
    parts.rows.push_back({.tensor = {.name = "w" + std::to_string(i), .shape = {100 + random() % 100, 4}}});
  }
  std::vector<std::uint64_t> data(64, 0);
  for (std::uint32_t writer = 0; writer < 64; ++writer) {
    WriterRequest request{.rows = parts.rows, .layouts = parts.layouts, .writer = writer};
    const std::uint64_t bytes = place_writer(request).value().files.at(0).data_bytes;
    parts.files.push_back({.key = {FileClass::weights, writer, 0}, .bytes = 4096 + bytes, .data_begin = 4096});
  }
  auto kept = WriterFiles::make(parts, 400).value();  // two writers' worth
  auto all = WriterFiles::make(parts).value();
  for (int i = 0; i < 2000; ++i) {
    const auto row = static_cast<std::uint32_t>(random() % 10);
    const auto writer = static_cast<std::uint32_t>(random() % 64);
    const TensorPlace one = kept.place(row, writer, 0).value();
    const TensorPlace other = all.place(row, writer, 0).value();
    ASSERT_EQ(one.file, other.file);
    ASSERT_EQ(one.offset, other.offset);
    ASSERT_LE(kept.kept_bytes(), 400u);
  }
  EXPECT_LT(all.kept_bytes(), 64u * 160u) << "writers whose files look alike share what is kept";
}

}  // namespace
}  // namespace ckpt
