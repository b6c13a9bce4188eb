// DCP saved with SerializationFormat.SAFETENSORS: the tensors of a file are one safetensors blob.
#include <gtest/gtest.h>

#include <string>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

const std::string kData = "AAAABBBBCCCCDDDD";
const std::string kEntry = R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";

std::string blob(const std::string& entries) {
  const std::string header = "{" + entries + "}";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 0xff);
  length[1] = static_cast<char>(header.size() >> 8);
  return length + header + kData;
}

/// An object, then a blob; the tensor `a` is a chunk at 4 of 8 floats.
struct BlobFiles : DcpFiles {
  explicit BlobFiles(const std::string& entries = kEntry) {
    add({.fqn = "step",
         .is_tensor = false,
         .records = {{std::nullopt, append("__0_0.distcp", dcp_build::save_object(dcp_build::integer_pickle(3)))}}});
    place = append("__0_0.distcp", blob(entries));
    place.length = kData.size();
    add({.fqn = "a", .shape = {8}, .chunks = {{{4}, {4}}}, .records = {{Shape{4}, place}}});
  }
  Result<Map> open(const ReadOptions& options = {}) {
    write();
    auto io = open_io(IoKind::threads, 8);
    EXPECT_TRUE(io.has_value());
    return dcp_format().reader->open(**io, root(), options);
  }
  void expect_corrupt(const std::string& text) {
    const auto map = open();
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::corrupt);
    EXPECT_EQ(map.error().file, root() + "/__0_0.distcp");
    EXPECT_GE(map.error().offset, place.offset);
    EXPECT_NE(map.error().message.find(text), std::string::npos) << map.error().message;
  }
  dcp_build::StorageInfo place;
};

TEST(DcpSafetensors, TensorBehindAnObjectIsFoundByItsKey) {
  BlobFiles files;
  const auto map = files.open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const std::size_t a = find_tensor(*map, "a");
  EXPECT_EQ(map->tensors[a].dtype, Dtype::f32);
  const Gathered gathered = gather(*map, files.root(), a, {4, 8});
  EXPECT_EQ(gathered.bytes, std::string(16, '\0') + kData);
  EXPECT_TRUE(gathered.complete);
  EXPECT_EQ(map->meta.step, 3u);
  EXPECT_EQ(gather(*map, files.root(), find_tensor(*map, "step")).bytes.substr(0, 2), "PK");
}

TEST(DcpSafetensors, BlobThatContradictsTheMetadataIsCorrupt) {
  BlobFiles(R"("b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})").expect_corrupt("no tensor of this name");
  BlobFiles(R"("a":{"dtype":"I32","shape":[4],"data_offsets":[0,16]})")
      .expect_corrupt("its dtype is I32, .metadata says float32");
  BlobFiles(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})")
      .expect_corrupt("its shape differs from the chunk");
  BlobFiles(R"("__metadata__":{"DCP_SHARDING_INFO":"{\"a\": {\"saved_offsets\": [0]}}"},)" + kEntry)
      .expect_corrupt("its saved_offsets differ from the chunk");
}

TEST(DcpSafetensors, DamagedHeaderNamesFileAndOffset) {
  BlobFiles(R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,20]})").expect_corrupt("safetensors at ");
  BlobFiles(R"("__metadata__":{"DCP_SHARDING_INFO":"{"},)" + kEntry).expect_corrupt("safetensors at ");
}

TEST(DcpSafetensors, TwoChunksOfATensorInOneFileAreLost) {
  BlobFiles files;
  files.entries().back().chunks = {{{0}, {4}}, {{4}, {4}}};
  files.entries().back().records = {{Shape{0}, files.place}, {Shape{4}, files.place}};
  const auto map = files.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().tensor, "a");
  EXPECT_NE(map.error().message.find("keeps only the last"), std::string::npos) << map.error().message;
}

TEST(DcpSafetensors, TwoBlobsInOneFileAreCorrupt) {
  BlobFiles files;
  const auto second = files.append("__0_0.distcp", blob(kEntry));
  files.add({.fqn = "b",
             .shape = {4},
             .chunks = {{{0}, {4}}},
             .records = {{Shape{0}, {second.file, second.offset, 16, {}}}}});
  const auto map = files.open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
}

TEST(DcpSafetensors, HeadersCountAsMetadata) {
  BlobFiles files;
  constexpr std::uint64_t kLimit = 100'000;  // room for .metadata, at what its bytes may take
  const auto map = files.open({.metadata_limit = kLimit});
  ASSERT_TRUE(map.has_value()) << map.error().message;
  BlobFiles large(R"("__metadata__":{"note":")" + std::string(3000, 'x') + R"("},)" + kEntry);
  const auto refused = large.open({.metadata_limit = 2000});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::memory);
}

}  // namespace
}  // namespace ckpt
