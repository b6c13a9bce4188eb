// DCP items that are zstd streams (torch's extension): opened from their ends, decoded within bounds.
#include <gtest/gtest.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

using dcp_build::integer_pickle;
using dcp_build::save_object;
using dcp_build::save_tensor;
using dcp_build::StorageInfo;
using dcp_build::View;

const std::vector<std::string> kZstd{"stream.zstd/1"};

std::string compressed(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

class DcpZstd : public testing::Test {
 protected:
  StorageInfo put(const std::string& stored) {
    StorageInfo place = files_.append("__0_0.distcp", stored);
    place.transforms = kZstd;
    return place;
  }
  /// A tensor of `count` floats whose item is `stored`.
  void add(const std::string& fqn, std::uint64_t count, const std::string& stored) {
    files_.add({.fqn = fqn, .shape = {count}, .chunks = {{{0}, {count}}}, .records = {{Shape{0}, put(stored)}}});
  }
  void add_object(const std::string& fqn, const std::string& stored) {
    files_.add({.fqn = fqn, .is_tensor = false, .records = {{std::nullopt, put(stored)}}});
  }
  Result<Map> open() {
    files_.write();
    auto io = open_io(IoKind::threads, 8);
    EXPECT_TRUE(io.has_value());
    return dcp_format().reader->open(**io, files_.root(), {});
  }
  Error error_of(const Map& map, const std::string& tensor) {
    const std::size_t index = find_tensor(map, tensor);
    const Result<> visited = map.index->chunks(index, {0, volume(map.tensors[index].shape)},
                                               [](const PlacedChunk&) -> Result<> { return {}; });
    EXPECT_FALSE(visited.has_value());
    return visited ? Error{} : visited.error();
  }
  void expect_named(const Error& error, Errc code, const std::string& tensor) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_EQ(error.tensor, tensor);
    EXPECT_EQ(error.file, files_.root() + "/__0_0.distcp");
  }
  DcpFiles files_;
};

std::string floats(std::size_t count) {
  std::string out(4 * count, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 2654435761u >> 13);
  return out;
}
std::string tensor_of(std::size_t count) {
  return save_tensor(View{"FloatStorage", count, 0, {count}, {1}}, floats(count));
}

TEST_F(DcpZstd, ItemsOfEveryLengthAreFoundByTheirEnds) {
  // Shorter than the parts that are held, as long as one, two and three of them, and longer.
  const std::vector<std::size_t> counts{1, 4, 15'900, 16'384, 32'000, 32'384, 48'700, 49'152, 200'000};
  for (const std::size_t count : counts) add(std::to_string(count), count, compressed(tensor_of(count)));
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_TRUE(map->compressed);
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Gathered gathered = gather(*map, files_.root(), find_tensor(*map, std::to_string(count)));
    EXPECT_TRUE(gathered.bytes == floats(count));
    EXPECT_TRUE(gathered.once && gathered.complete && gathered.crc_agrees);
  }
}

TEST_F(DcpZstd, TransposedTensorsKeepTheirStrides) {
  files_.add({.fqn = "t",
              .shape = {2, 3},
              .chunks = {{{0, 0}, {2, 3}}},
              .records = {{Shape{0, 0}, put(compressed(save_tensor({"FloatStorage", 6, 0, {2, 3}, {1, 2}},
                                                                   "aaaabbbbccccddddeeeeffff")))}}});
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(gather(*map, files_.root(), 0).bytes, "aaaacccceeeebbbbddddffff");
}

TEST_F(DcpZstd, SafetensorsUnderItIsRefused) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  add("w", 4, compressed(std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + floats(4)));
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  expect_named(error_of(*map, "w"), Errc::corrupt, "w");
}

TEST_F(DcpZstd, ObjectsAreReadAndKeptDecoded) {
  add_object("step", compressed(save_object(integer_pickle(41))));
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->meta.step, 41u);
  EXPECT_EQ(gather(*map, files_.root(), 0).bytes, save_object(integer_pickle(41)));
}

TEST_F(DcpZstd, ABombIsCorruptAndEndsAtItsBound) {
  add("w", 4, compressed(std::string(std::size_t{2} << 20, '\0')));
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  expect_named(error_of(*map, "w"), Errc::corrupt, "w");

  const std::string frame = compressed(std::string(std::size_t{1} << 20, '\0'));
  std::string frames;
  for (int i = 0; i < 257; ++i) frames += frame;
  add_object("state", frames);
  const auto refused = open();
  ASSERT_FALSE(refused.has_value());
  expect_named(refused.error(), Errc::corrupt, "state");
}

TEST_F(DcpZstd, ACutOrDamagedItemNamesTensorAndFile) {
  const std::string whole = compressed(tensor_of(300));
  add("cut", 300, whole.substr(0, whole.size() - 9));
  add("plain", 300, tensor_of(300));  // a torch.save stream that is not compressed
  add("more", 300, whole + "x");
  add("other", 301, whole);  // another shape than .metadata says
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const std::string name : {"cut", "plain", "more", "other"}) {
    SCOPED_TRACE(name);
    expect_named(error_of(*map, name), Errc::corrupt, name);
  }
}

TEST_F(DcpZstd, OtherTransformsAreUnsupportedByName) {
  using Names = std::vector<std::string>;
  const std::vector<Names> unread{Names{"stream.zstd/2"}, Names{"stream.lz4/1"}, Names(2, "stream.zstd/1")};
  for (const Names& transforms : unread) {
    files_.entries().clear();
    add("w", 4, compressed(tensor_of(4)));
    files_.entries()[0].records[0].second.transforms = transforms;
    const auto map = open();
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::unsupported) << map.error().message;
    EXPECT_NE(map.error().message.find(transforms.front()), std::string::npos) << map.error().message;
    EXPECT_FALSE(map.error().hint.empty());
  }
}

}  // namespace
}  // namespace ckpt
