#include "convert/torch_archive.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/file_bytes.hpp"
#include "support/pickle_writer.hpp"
#include "support/temp_dir.hpp"
#include "support/zip_writer.hpp"

namespace ckpt {
namespace {

using test::PickleWriter;
using test::torch_file;
using test::ZipWriter;

class TorchArchiveTest : public testing::Test {
 protected:
  void SetUp() override {
    auto io = open_io(IoKind::threads);
    ASSERT_TRUE(io) << io.error().message;
    io_ = *std::move(io);
  }

  Result<TorchArchive> open(const std::string& path, std::optional<Extent> stream = {}) {
    CKPT_TRY(const FileHandle file, io_->open(path, {}));
    CKPT_TRY(const FileInfo info, io_->info(file));
    auto archive = open_torch_archive(*io_, file, path, stream.value_or(Extent{0, info.bytes}));
    CKPT_CHECK(io_->close(file));
    return archive;
  }
  Result<TorchArchive> open_bytes(const std::string& bytes) {
    const std::string path = write(bytes);
    return open(path);
  }
  std::string write(const std::string& bytes) {
    const std::string path = temp_.path() + "/file" + std::to_string(++count_) + ".pt";
    test::write_file(path, bytes);
    return path;
  }
  Errc code_of(const std::string& bytes) {
    const auto archive = open_bytes(bytes);
    return archive ? Errc{} : archive.error().code;
  }
  Result<TorchArchive> golden(const std::string& name) { return open(CKPT_GOLDEN_DIR "/" + name); }

  TempDir temp_;
  std::unique_ptr<Io> io_;
  int count_ = 0;
};

std::string four_floats() {
  return PickleWriter().tensor("0", 4, 0, {4}, {1}).stop();
}

TEST_F(TorchArchiveTest, StoragesAreFoundByTheirLocalHeaders) {
  const std::string path = CKPT_GOLDEN_DIR "/torch/pt_align4k/ckpt/file.pt";
  const auto archive = open(path);
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_TRUE(archive->has_crc);
  ASSERT_EQ(archive->storages.size(), 2u);
  const std::string bytes = test::read_file(path);
  for (const auto& [key, place] : archive->storages) {
    EXPECT_EQ(place.offset % 4096, 0u) << key;
    ASSERT_LE(place.offset + place.bytes, bytes.size());
    EXPECT_EQ(crc32(0, std::as_bytes(std::span(bytes).subspan(place.offset, place.bytes))), place.crc) << key;
  }
}

TEST_F(TorchArchiveTest, ManyStoragesInAnyOrderAreFound) {
  ZipWriter zip;
  zip.add("archive/data.pkl", PickleWriter().raw("}").stop());
  for (int i = 0; i < 500; ++i) {
    const std::string payload(i % 50 == 0 ? 200000 : 7, static_cast<char>(i));
    zip.add("archive/data/" + std::to_string(i), payload,
            {.local_extra = std::string(static_cast<std::size_t>(i), 'x')});
  }
  const std::string bytes = zip.finish();
  const auto archive = open_bytes(bytes);
  ASSERT_TRUE(archive) << archive.error().message;
  ASSERT_EQ(archive->storages.size(), 500u);
  for (int i = 0; i < 500; ++i) {
    const StoragePlace place = archive->storages.at(std::to_string(i));
    EXPECT_EQ(place.bytes, i % 50 == 0 ? 200000u : 7u);
    EXPECT_EQ(bytes[place.offset - 1], i == 0 ? '0' : 'x');
    EXPECT_EQ(bytes[place.offset], static_cast<char>(i));
    EXPECT_EQ(bytes[place.offset + place.bytes - 1], static_cast<char>(i));
  }
}

TEST_F(TorchArchiveTest, AStreamInsideALargerFileHasOffsetsOfTheFile) {
  const std::string inner = torch_file(four_floats(), {"0123456789abcdef"});
  const std::string path = write(std::string(1000, '#') + inner + std::string(1000, '#'));
  const auto archive = open(path, Extent{1000, 1000 + inner.size()});
  ASSERT_TRUE(archive) << archive.error().message;
  const std::string bytes = test::read_file(path);
  EXPECT_EQ(bytes.substr(archive->storages.at("0").offset, 16), "0123456789abcdef");
  EXPECT_EQ(bytes.substr(archive->pickle_bytes.begin, archive->pickle_bytes.size()), four_floats());
}

TEST_F(TorchArchiveTest, ArchivesWithoutChecksumsAreTold) {
  const auto archive = golden("torch/pt_nocrc/ckpt/file.pt");
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_FALSE(archive->has_crc);
  const auto view = torch::as_tensor(archive->graph, archive->graph.find(archive->graph.root(), "x"));
  ASSERT_TRUE(view && *view);
  const auto where = archive->locate(**view, 0);
  ASSERT_TRUE(where);
  EXPECT_FALSE(where->crc);
}

TEST_F(TorchArchiveTest, BigEndianFilesAreTold) {
  const auto archive = open_bytes(torch_file(four_floats(), {"0123456789abcdef"}, true, "big"));
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_TRUE(archive->big_endian);
  const auto view = torch::as_tensor(archive->graph, archive->graph.root());
  ASSERT_TRUE(view && *view);
  EXPECT_TRUE(archive->locate(**view, 0)->big_endian);
  EXPECT_EQ(code_of(torch_file(four_floats(), {"0123456789abcdef"}, true, "middle")), Errc::corrupt);
}

TEST_F(TorchArchiveTest, LocatorsCarryTheChecksumOfTheWholeStorage) {
  const std::string pickle = PickleWriter().tensor("0", 4, 2, {2}, {1}).stop();
  const auto archive = open_bytes(torch_file(pickle, {"0123456789abcdef"}));
  ASSERT_TRUE(archive);
  const auto view = torch::as_tensor(archive->graph, archive->graph.root());
  ASSERT_TRUE(view && *view);
  const auto where = archive->locate(**view, 7);
  ASSERT_TRUE(where) << where.error().message;
  const std::uint64_t begin = archive->storages.at("0").offset;
  EXPECT_EQ(where->file, 7u);
  EXPECT_EQ(where->offset, begin + 8);
  EXPECT_TRUE(where->strides.empty());
  ASSERT_TRUE(where->crc);
  EXPECT_EQ(where->crc->begin, begin);
  EXPECT_EQ(where->crc->end, begin + 16);
  EXPECT_EQ(where->crc->value, crc32(0, std::as_bytes(std::span("0123456789abcdef", 16))));
}

TEST_F(TorchArchiveTest, StoragesThatContradictThePickleAreCorrupt) {
  for (const auto& [pickle, storages] :
       {std::pair{PickleWriter().tensor("0", 5, 0, {4}, {1}).stop(), std::string("0123456789abcdef")},
        std::pair{PickleWriter().tensor("7", 4, 0, {4}, {1}).stop(), std::string("0123456789abcdef")}}) {
    const auto archive = open_bytes(torch_file(pickle, {storages}));
    ASSERT_FALSE(archive);
    EXPECT_EQ(archive.error().code, Errc::corrupt);
    EXPECT_NE(archive.error().message.find("which is missing"), std::string::npos) << archive.error().message;
  }
}

TEST_F(TorchArchiveTest, TransposedViewsHaveStridesAndRowsDoNot) {
  const auto place = [&](std::initializer_list<std::int64_t> size, std::initializer_list<std::int64_t> stride) {
    const auto archive =
        open_bytes(torch_file(PickleWriter().tensor("0", 6, 0, size, stride).stop(), {"0123456789abcdef01234567"}));
    const auto view = torch::as_tensor(archive->graph, archive->graph.root());
    return archive->locate(**view, 0)->strides;
  };
  EXPECT_EQ(place({2, 3}, {3, 1}), (std::vector<std::int64_t>{}));
  EXPECT_EQ(place({1, 3}, {77, 1}), (std::vector<std::int64_t>{}));
  EXPECT_EQ(place({3, 2}, {1, 3}), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(place({2, 3}, {0, 1}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(place({3, 0}, {9, 9}), (std::vector<std::int64_t>{}));
}

TEST_F(TorchArchiveTest, ComplexAndPackedTypesGetTheirModelType) {
  torch::TensorView view{.dtype_name = "complex128", .shape = {3, 2}, .strides = {1, 3}, .element_bytes = 16};
  auto type = model_type(view);
  ASSERT_TRUE(type);
  EXPECT_EQ(type->dtype, Dtype::f64);
  EXPECT_EQ(type->shape, (Shape{3, 2, 2}));
  EXPECT_EQ(type->true_dtype, "complex128");
  view.dtype_name = "complex32";
  EXPECT_EQ(model_type(view)->dtype, Dtype::f16);
  view.dtype_name = "float4_e2m1fn_x2";
  type = model_type(view);
  ASSERT_TRUE(type);
  EXPECT_EQ(type->dtype, Dtype::f4);
  EXPECT_EQ(type->shape, (Shape{3, 4}));
  EXPECT_EQ(type->true_dtype, "");
  view.dtype_name = "qint8";
  EXPECT_EQ(model_type(view).error().code, Errc::unsupported);
}

TEST_F(TorchArchiveTest, TransposedComplexViewsStepOverPairs) {
  PickleWriter writer;
  writer.global("torch._utils", "_rebuild_tensor_v2").raw("(").storage("0", 4, "ComplexDoubleStorage").integer(0);
  writer.tuple_of({2, 2}).tuple_of({1, 2}).raw("\x89").ordered_dict().raw("tR");
  const auto archive = open_bytes(torch_file(writer.stop(), {std::string(64, 'z')}));
  ASSERT_TRUE(archive) << archive.error().message;
  const auto view = torch::as_tensor(archive->graph, archive->graph.root());
  ASSERT_TRUE(view && *view);
  EXPECT_EQ(archive->locate(**view, 0)->strides, (std::vector<std::int64_t>{2, 4, 1}));
}

TEST_F(TorchArchiveTest, OtherFilesAreNamedForWhatTheyAre) {
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(code_of(tar), Errc::unsupported);
  ZipWriter script;
  script.add("m/data.pkl", "N.").add("m/constants.pkl", "N.");
  EXPECT_EQ(code_of(script.finish()), Errc::unsupported);
  EXPECT_EQ(code_of(ZipWriter().add("word/document.xml", "<x/>").finish()), Errc::unsupported);
  EXPECT_EQ(code_of("a text file"), Errc::corrupt);
  EXPECT_EQ(code_of(""), Errc::corrupt);
}

TEST_F(TorchArchiveTest, BrokenFilesGetTheirCode) {
  EXPECT_EQ(golden("broken/zip_truncated/ckpt/pytorch_model.bin").error().code, Errc::corrupt);
  const auto flipped = golden("broken/zip_flipped_pickle_byte/ckpt/proto2.pt");
  ASSERT_FALSE(flipped);
  EXPECT_EQ(flipped.error().code, Errc::checksum);
  EXPECT_EQ(golden("broken/zip_bomb_pickle/ckpt/model.pt").error().code, Errc::refused);
  EXPECT_EQ(golden("broken/zip_path_escape/ckpt/model.pt").error().code, Errc::refused);
  EXPECT_EQ(golden("broken/pickle_deep_nesting/ckpt/model.pt").error().code, Errc::refused);
  EXPECT_EQ(golden("broken/pickle_huge_length/ckpt/model.pt").error().code, Errc::corrupt);
  const auto hostile = golden("broken/pickle_os_system/ckpt/model.pt");
  ASSERT_FALSE(hostile);
  EXPECT_EQ(hostile.error().code, Errc::refused);
  EXPECT_NE(hostile.error().message.find("os.system"), std::string::npos);
  EXPECT_NE(hostile.error().file.find("model.pt"), std::string::npos);
}

TEST_F(TorchArchiveTest, ADamagedStorageIsNotNoticedByOpening) {
  EXPECT_TRUE(golden("broken/zip_flipped_tensor_byte/ckpt/pytorch_model.bin"));  // the run checks its CRC
}

TEST_F(TorchArchiveTest, LocalHeadersThatLieAreCorrupt) {
  ZipWriter shifted;
  shifted.add("a/data.pkl", "N.").add("a/data/0", "0123456789", {.header_shift = 3});
  EXPECT_EQ(code_of(shifted.finish()), Errc::corrupt);
  const std::string path =
      write(ZipWriter().add("a/data.pkl", "N.").add("a/data/0", "x").add("a/data/1", "y").finish());
  std::string bytes = test::read_file(path);
  bytes[bytes.find("PK\3\4", 4) + 28] = 20;  // a longer extra field: its data would lie in the next entry
  EXPECT_EQ(code_of(bytes), Errc::corrupt);
}

}  // namespace
}  // namespace ckpt
