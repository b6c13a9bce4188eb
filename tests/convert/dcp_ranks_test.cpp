// DCP saved with use_collectives=False: every rank wrote its own metadata file.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

using dcp_build::save_tensor;
using dcp_build::View;

/// Ranks that save each for itself.
class RankFiles {
 public:
  /// Two rows of a (2 * ranks, 2) matrix `w`, the same vector `v`, and an object.
  dcp_build::Entry& add_rows(std::uint64_t rank, std::uint64_t ranks, const std::string& data) {
    const auto place = files.append(name(rank), save_tensor(View{"FloatStorage", 4, 0, {2, 2}, {2, 1}}, data));
    return entries(rank).emplace_back(dcp_build::Entry{.fqn = "w",
                                                       .shape = {2 * ranks, 2},
                                                       .chunks = {{{2 * rank, 0}, {2, 2}}},
                                                       .records = {{Shape{2 * rank, 0}, place}}});
  }
  dcp_build::Entry& add_vector(std::uint64_t rank, const std::string& fqn, const std::string& data) {
    const auto place = files.append(name(rank), save_tensor(View{"FloatStorage", 4, 0, {4}, {1}}, data));
    return entries(rank).emplace_back(
        dcp_build::Entry{.fqn = fqn, .shape = {4}, .chunks = {{{0}, {4}}}, .records = {{Shape{0}, place}}});
  }
  dcp_build::Entry& add_bytes(std::uint64_t rank, const std::string& fqn, const std::string& data) {
    const auto place = files.append(name(rank), save_tensor(View{"ByteStorage", 8, 0, {8}, {1}}, data));
    return entries(rank).emplace_back(dcp_build::Entry{
        .fqn = fqn, .dtype = "uint8", .shape = {8}, .chunks = {{{0}, {8}}}, .records = {{Shape{0}, place}}});
  }
  void add_object(std::uint64_t rank, const std::string& fqn, std::int64_t value) {
    const auto place = files.append(name(rank), dcp_build::save_object(dcp_build::integer_pickle(value)));
    entries(rank).push_back({.fqn = fqn, .is_tensor = false, .records = {{std::nullopt, place}}});
  }
  void write() {
    files.write();
    std::filesystem::remove(files.root() + "/.metadata");
    for (const auto& [rank, list] : entries_) write_metadata(rank, list);
  }
  void write_metadata(std::uint64_t rank, const std::vector<dcp_build::Entry>& list) const {
    files.write_file("__" + std::to_string(rank) + ".metadata", dcp_build::metadata(list));
  }
  std::vector<dcp_build::Entry>& entries(std::uint64_t rank) { return entries_[rank]; }

  Result<Map> open() const {
    auto io = open_io(IoKind::threads, 8);
    EXPECT_TRUE(io.has_value());
    return dcp_format().reader->open(**io, files.root(), {});
  }
  std::string path(const std::string& file) const { return files.root() + "/" + file; }

  DcpFiles files;

 private:
  static std::string name(std::uint64_t rank) { return "__" + std::to_string(rank) + "_0.distcp"; }
  std::map<std::uint64_t, std::vector<dcp_build::Entry>> entries_;
};

const std::string kFirst = "AAAABBBBCCCCDDDD";
const std::string kSecond = "EEEEFFFFGGGGHHHH";

struct TwoRanks : RankFiles {
  TwoRanks() {
    add_rows(0, 2, kFirst);
    add_rows(1, 2, kSecond);
  }
};

TEST(DcpRanks, PiecesOfAllRanksAreOneTensor) {
  TwoRanks ranks;
  ranks.write();
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 1u);
  EXPECT_EQ(map->tensors[0].shape, (Shape{4, 2}));
  const Gathered gathered = gather(*map, ranks.files.root(), 0);
  EXPECT_EQ(gathered.bytes, kFirst + kSecond);
  EXPECT_TRUE(gathered.once);
  EXPECT_EQ(map->meta.world_size, 2u);
}

TEST(DcpRanks, WhatEveryRankSavedIsAReplica) {
  TwoRanks ranks;
  ranks.add_vector(0, "bias", kFirst);
  ranks.add_vector(1, "bias", kSecond);
  ranks.write();
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const Gathered gathered = gather(*map, ranks.files.root(), find_tensor(*map, "bias"));
  EXPECT_FALSE(gathered.once);
  EXPECT_FALSE(gathered.replicas_agree);  // both are visited: a comparison can find it
}

TEST(DcpRanks, OnlyObjectsThatDifferAreKeptOnceForEachRank) {
  TwoRanks ranks;
  for (const std::uint64_t rank : {0u, 1u}) {
    ranks.add_object(rank, "step", 7);
    ranks.add_object(rank, "rng.seed", static_cast<std::int64_t>(rank));
  }
  ranks.write();
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::string> names;
  for (const NamedObject& object : map->objects) names.push_back(object.name);
  EXPECT_EQ(names, (std::vector<std::string>{"step", "rng.seed", "__1.metadata/rng.seed"}));
  EXPECT_EQ(map->tensors[find_tensor(*map, "__1.metadata/rng.seed")].role, Role::blob);
  EXPECT_EQ(map->objects.back().path, (Path{"__1.metadata", "rng.seed"}));
  EXPECT_EQ(std::get<std::int64_t>(map->objects.back().value.v), 1);
  EXPECT_EQ(map->meta.step, 7u);
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_NE(map->findings[0].text.find("differ between ranks"), std::string::npos);
}

TEST(DcpRanks, RandomStatesAreKeptOnceForEachRank) {
  TwoRanks ranks;
  for (const std::uint64_t rank : {0u, 1u}) {
    ranks.add_bytes(rank, "rng.torch", rank == 0 ? "AAAABBBB" : "CCCCDDDD");
    ranks.add_bytes(rank, "rng.cuda", "EEEEFFFF");
  }
  ranks.write();
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const auto bytes = [&](const char* name) { return gather(*map, ranks.files.root(), find_tensor(*map, name)).bytes; };
  EXPECT_EQ(map->tensors.size(), 4u);  // those that are equal once
  EXPECT_EQ(bytes("rng.torch"), "AAAABBBB");
  EXPECT_EQ(bytes("__1.metadata/rng.torch"), "CCCCDDDD");
  EXPECT_EQ(bytes("rng.cuda"), "EEEEFFFF");
}

void expect_missing(const RankFiles& ranks, const std::string& file, const std::string& text) {
  const auto map = ranks.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::incomplete);
  EXPECT_EQ(exit_code(map.error().code), 13);
  EXPECT_EQ(map.error().file, ranks.path(file));
  EXPECT_NE(map.error().message.find(text), std::string::npos) << map.error().message;
}

TEST(DcpRanks, MissingMetadataOfARankIsNamed) {
  for (const std::string gone : {"__0.metadata", "__1.metadata"}) {
    TwoRanks ranks;
    ranks.write();
    std::filesystem::remove(ranks.path(gone));
    expect_missing(ranks, gone, "1 of 2 ranks is missing: " + gone);
  }
}

TEST(DcpRanks, AHugeRankIsNotCountedUpTo) {
  TwoRanks ranks;
  ranks.write();
  ranks.files.write_file("__4294967295.metadata", "x");
  expect_missing(ranks, "__2.metadata",
                 "__2.metadata, __3.metadata, __4.metadata, __5.metadata, __6.metadata and 429496728");
}

void expect_disagreement(const RankFiles& ranks, const std::string& file, const std::string& text) {
  const auto map = ranks.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().tensor, "w");
  EXPECT_EQ(map.error().file, ranks.path(file));
  EXPECT_NE(map.error().message.find(ranks.path("__1.metadata") + ": " + text), std::string::npos)
      << map.error().message;
}

TEST(DcpRanks, AnotherDtypeShapeOrKindIsCorruptAndNamesTheTensor) {
  TwoRanks dtype;
  dtype.entries(1)[0].dtype = "int32";
  dtype.write();
  expect_disagreement(dtype, "__1.metadata", "its dtype is int32, but float32 in __0.metadata");

  TwoRanks shape;
  shape.entries(1)[0].shape = {5, 2};
  shape.write();
  expect_disagreement(shape, "__1.metadata", "its shape differs from that in __0.metadata");

  TwoRanks kind;
  kind.entries(1).clear();
  kind.add_object(1, "w", 1);
  kind.write();
  expect_disagreement(kind, "__1.metadata", "an object, which is a tensor in __0.metadata");
}

TEST(DcpRanks, ChunksOfOtherSizesAtOnePlaceAreCorrupt) {
  RankFiles ranks;
  ranks.add_rows(0, 2, kFirst);
  dcp_build::Entry& other = ranks.add_rows(1, 2, kSecond);
  other.chunks = {{{0, 0}, {1, 2}}};
  other.records[0].first = Shape{0, 0};
  ranks.write();
  const auto map = ranks.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().tensor, "w");
  EXPECT_NE(map.error().message.find("a chunk begins where one of another size begins"), std::string::npos);
}

TEST(DcpRanks, DamagedMetadataNamesItsFile) {
  TwoRanks ranks;
  ranks.write();
  ranks.files.write_file("__1.metadata", "\x80\x04}.");
  const auto map = ranks.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().file, ranks.path("__1.metadata"));
  EXPECT_EQ(map.error().message, ranks.path("__1.metadata") + ": its top object is not a DCP Metadata");
}

TEST(DcpRanks, MetadataOfTheWholeSaveGoesBeforeThoseOfRanks) {
  TwoRanks ranks;
  ranks.add_vector(0, "bias", kFirst);
  ranks.write();
  ranks.files.write_file(".metadata", dcp_build::metadata({ranks.entries(0).back()}));
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 1u);
  EXPECT_EQ(map->tensors[0].name, "bias");
  ASSERT_EQ(map->findings.size(), 2u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
  EXPECT_NE(map->findings[1].text.find("__1_0.distcp"), std::string::npos) << map->findings[1].text;
}

TEST(DcpRanks, BoundsOver32BitsKeepTheirNumbers) {
  RankFiles ranks;
  const std::uint64_t far = std::uint64_t{1} << 33;
  for (const std::uint64_t rank : {0u, 1u}) {
    dcp_build::Entry& entry = ranks.add_vector(rank, "w", rank == 0 ? kFirst : kSecond);
    entry.shape = {far + 4};
    entry.chunks = {{{rank * far}, {4}}};
    entry.records[0].first = Shape{rank * far};
  }
  ranks.write();
  const auto map = ranks.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint64_t> offsets;
  const auto visited = map->index->regions(0, {0, far + 4}, [&](const Chunk& chunk) -> Result<> {
    offsets.push_back(chunk.box.offset[0]);
    return {};
  });
  ASSERT_TRUE(visited.has_value());
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, far}));
}

}  // namespace
}  // namespace ckpt
