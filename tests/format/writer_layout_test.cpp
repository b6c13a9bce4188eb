#include "format/universal/writer_layout.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/text/json.hpp"
#include "format/universal/whole_layout.hpp"
#include "support/mesh_checkpoint.hpp"

namespace ckpt::universal {
namespace {

std::string metadata(const WriterFile& file, std::string_view key) {
  const auto header = safetensors::parse_header(std::as_bytes(std::span(file.header)), file.bytes);
  EXPECT_TRUE(header) << header.error().message;
  for (const auto& [name, value] : header->metadata) {
    if (name == key) return value;
  }
  return "";
}

/// Three rows: `a` whole in volume 1, `b` divided by rows, `c` by elements; two writers.
struct Case {
  std::vector<Layout> layouts{3};
  std::vector<TensorRow> rows{3};

  Case() {
    for (std::size_t i = 1; i < 3; ++i) {
      layouts[i].kind = Layout::Kind::mesh;
      layouts[i].mesh.axes = {{"dp", 2}};
    }
    layouts[1].cuts = {{.dim = 0, .axes = {0}}};
    layouts[2].flat = Layout::Flat{.axes = {0}, .part = 4};
    rows[0] = {.tensor = {.name = "a", .shape = {3}}, .volume = 1};
    rows[1] = {.tensor = {.name = "b", .dtype = Dtype::bf16, .shape = {3, 5}}, .layout = 1};
    rows[2] = {.tensor = {.name = "c", .shape = {2, 3}, .role = Role::slot}, .layout = 2};
  }
  WriterRequest request(std::uint32_t writer) const {
    return {.rows = rows, .layouts = layouts, .id = hash128("id"), .writer = writer};
  }
};

TEST(WriterLayout, FilesFollowFromClassWriterAndVolume) {
  const Case c;
  const auto zero = lay_out_writer(c.request(0)).value();
  ASSERT_EQ(zero.size(), 3u);
  EXPECT_EQ(zero[0].key, (FileKey{FileClass::weights, 0, 0}));
  EXPECT_EQ(zero[0].entries[0].chunk, (Chunk{.box = {{0, 0}, {2, 5}}}));
  EXPECT_EQ(zero[1].key, (FileKey{FileClass::weights, 0, 1}));
  EXPECT_EQ(zero[1].entries[0].row, 0u);
  EXPECT_EQ(zero[2].key, (FileKey{FileClass::optim, 0, 0}));
  EXPECT_EQ(zero[2].entries[0].bytes, 16u);
  const auto one = lay_out_writer(c.request(1)).value();
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[0].key, (FileKey{FileClass::weights, 1, 0}));
  EXPECT_EQ(one[1].entries[0].chunk, (Chunk{.box = {{0, 0}, {2, 3}}, .flat = Extent{4, 6}}));
  EXPECT_TRUE(lay_out_writer(c.request(2)).value().empty()) << "a writer beyond the mesh";
  for (const WriterFile& file : zero) {
    EXPECT_EQ(file.header.size(), file.data_begin);
    EXPECT_EQ(file.data_begin % kDataAlignment, 0u);
  }
}

TEST(WriterLayout, PartsOfTensorsAreAnnouncedAndWholeOnesAreNot) {
  const Case c;
  const auto zero = lay_out_writer(c.request(0)).value();
  const std::string id = hash128("id").hex();
  EXPECT_EQ(metadata(zero[0], safetensors::kSlicesKey), R"({"b":{"saved_offsets":[0,0]}})");
  EXPECT_EQ(metadata(zero[0], safetensors::kSlicesVersionKey), "1.0");
  EXPECT_EQ(metadata(zero[0], kSeriesKey),
            R"({"format":"1.0","id":")" + id + R"(","class":"weights","writer":0,"volume":0})");
  EXPECT_EQ(metadata(zero[1], safetensors::kSlicesKey), "");
  EXPECT_EQ(metadata(zero[2], safetensors::kSlicesKey), R"({"c":{"saved_offsets":[0]}})");
  EXPECT_EQ(metadata(zero[2], kSeriesKey),
            R"({"format":"1.0","id":")" + id + R"(","class":"optim","writer":0,"volume":0,"dcp_readable":false})");
  const auto one = lay_out_writer(c.request(1)).value();
  EXPECT_EQ(metadata(one[0], safetensors::kSlicesKey), R"({"b":{"saved_offsets":[2,0]}})");
  EXPECT_EQ(metadata(one[1], safetensors::kSlicesKey), R"({"c":{"saved_offsets":[4]}})");
}

TEST(WriterLayout, AFileWithOnePartAnnouncesAllItsEntries) {
  Case c;
  c.rows[0].volume = 0;
  const auto zero = lay_out_writer(c.request(0)).value();
  EXPECT_EQ(metadata(zero[0], safetensors::kSlicesKey), R"({"a":{"saved_offsets":[0]},"b":{"saved_offsets":[0,0]}})");
}

TEST(WriterLayout, EntriesAreOrderedByTheAlignmentOfTheirChunks) {
  Case c;
  c.rows[0].volume = 0;
  c.rows[1].tensor.shape = {4096, 2};  // a chunk of 8192 bytes
  const auto zero = lay_out_writer(c.request(0)).value();
  EXPECT_EQ(zero[0].entries[0].row, 1u);
  EXPECT_EQ(zero[0].entries[0].offset, zero[0].data_begin);
  EXPECT_EQ(zero[0].entries[1].row, 0u);
  EXPECT_EQ(zero[0].entries[1].offset, zero[0].data_begin + 8192);
}

TEST(WriterLayout, PlacesAreThoseOfTheHeaders) {
  std::mt19937_64 random(7);
  std::size_t compared = 0;
  for (int i = 0; i < 200; ++i) {
    const test::MeshCheckpoint c = test::random_mesh_checkpoint(random);
    for (std::uint32_t writer = 0; writer < c.writer_count(); ++writer) {
      WriterRequest request{.rows = c.manifest.tensors, .layouts = c.manifest.layouts, .writer = writer};
      if (const auto at = c.irregular.find(writer); at != c.irregular.end()) request.irregular = at->second;
      const auto files = lay_out_writer(request).value();
      const auto places = place_writer(request).value();
      ASSERT_EQ(places.files.size(), files.size());
      auto entry = places.entries.begin();
      for (std::uint32_t row = 0; row < request.rows.size(); ++row) {
        for (std::size_t f = 0; f < files.size(); ++f) {
          ASSERT_EQ(places.files[f].key, files[f].key);
          ASSERT_EQ(places.files[f].data_bytes, files[f].bytes - files[f].data_begin);
          ASSERT_EQ(places.files[f].entry_count, files[f].entries.size());
          for (const WriterEntry& want : files[f].entries) {
            if (want.row != row) continue;
            ASSERT_NE(entry, places.entries.end());
            ASSERT_EQ(entry->row, row);
            ASSERT_EQ(entry->volume, files[f].key.volume);
            ASSERT_EQ(entry->offset, want.offset - files[f].data_begin);
            ASSERT_EQ(entry->bytes, want.bytes);
            ++entry;
            ++compared;
          }
        }
      }
      ASSERT_EQ(entry, places.entries.end());
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(WriterLayout, BrokenPromisesOfTheCallerAreInternal) {
  Case c;
  const auto code = [](const WriterRequest& request) {
    const auto files = lay_out_writer(request);
    return files ? Errc::io : files.error().code;
  };
  std::swap(c.rows[0], c.rows[1]);
  EXPECT_EQ(code(c.request(0)), Errc::internal) << "rows out of order";
  std::swap(c.rows[0], c.rows[1]);
  c.rows[1].layout = 3;
  EXPECT_EQ(code(c.request(0)), Errc::internal) << "no such layout";
  c.rows[1].layout = 1;
  c.layouts[2] = {.kind = Layout::Kind::irregular};
  const auto with = [&](std::vector<GivenChunks> given) {
    WriterRequest request = c.request(0);
    request.irregular = given;
    return code(request);
  };
  EXPECT_EQ(with({{2, {{.box = {{0, 0}, {1, 3}}}}}}), Errc::io) << "this is right";
  EXPECT_EQ(with({{1, {{.box = {{0, 0}, {1, 5}}}}}}), Errc::internal) << "a row with a rule";
  EXPECT_EQ(with({{2, {{.box = {{0, 0}, {3, 3}}}}}}), Errc::internal) << "outside";
  EXPECT_EQ(with({{2, {{.box = {{0, 0}, {2, 3}}, .flat = Extent{5, 7}}}}}), Errc::internal) << "outside of its box";
  EXPECT_EQ(with({{7, {}}}), Errc::internal) << "no such row";
}

}  // namespace
}  // namespace ckpt::universal
