#include "format/universal/sums.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace ckpt::universal {
namespace {

constexpr std::uint64_t kLeaf = std::uint64_t{1} << kLeafShift;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Hash128 numbered(std::uint8_t n) {
  Hash128 hash;
  hash.bytes.fill(n);
  return hash;
}

/// Two weight volumes (one of two leaves), an optimizer file, blobs and objects.
Sums sample() {
  Sums sums;
  sums.id = numbered(7);
  sums.files = {{.key = {FileClass::weights, 0, 0}, .bytes = kLeaf + 1, .data_begin = 4096},
                {.key = {FileClass::weights, 0, 1}, .bytes = 4096, .data_begin = 4096},
                {.key = {FileClass::optim, 0, 0}, .bytes = 3 * kLeaf, .data_begin = 8192},
                {.key = {FileClass::blobs, 2, 0}, .bytes = 5000, .data_begin = 4096},
                {.key = {FileClass::objects, 0, 0}, .bytes = 0}};
  for (std::uint8_t i = 0; i < 7; ++i) sums.leaves.push_back(numbered(static_cast<std::uint8_t>(100 + i)));
  return sums;
}

std::string built(Sums sums = sample()) {
  Result<std::string> text = build_sums(sums);
  EXPECT_TRUE(text) << text.error().message;
  return text.value_or("");
}

/// `value` little-endian at `offset`.
std::string with(std::string text, std::size_t offset, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) text[offset + i] = static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

void expect_fails(const std::string& text, Errc code, std::uint64_t offset) {
  const Result<Sums> sums = parse_sums(bytes_of(text));
  ASSERT_FALSE(sums);
  EXPECT_EQ(sums.error().code, code) << sums.error().message;
  EXPECT_EQ(sums.error().offset, offset) << sums.error().message;
}

TEST(Sums, ReadBackAsTheyWereBuilt) {
  Sums in = sample();
  const Result<std::string> text = build_sums(in);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->size(), 64u + 5 * 64 + 7 * 16);
  const Result<Sums> out = parse_sums(bytes_of(*text));
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->id, in.id);
  EXPECT_EQ(out->leaves, in.leaves);
  ASSERT_EQ(out->files.size(), in.files.size());
  for (std::size_t i = 0; i < in.files.size(); ++i) {
    EXPECT_EQ(out->files[i].key, in.files[i].key);
    EXPECT_EQ(out->files[i].bytes, in.files[i].bytes);
    EXPECT_EQ(out->files[i].data_begin, in.files[i].data_begin);
    EXPECT_EQ(out->files[i].first_leaf, in.files[i].first_leaf);
    EXPECT_EQ(out->files[i].root, in.files[i].root);
  }
  EXPECT_EQ(out->files[2].first_leaf, 3u);
  EXPECT_EQ(out->leaves_of(out->files[2])[0], numbered(103));
}

// The table of FORMAT.md section 5, byte by byte.
TEST(Sums, StandWhereTheSpecificationSays) {
  const std::string text = built();
  EXPECT_EQ(text.substr(0, 8), "CKPTSUMS");
  EXPECT_EQ(text.substr(8, 8), std::string("\1\0\0\0\x16\0\0\0", 8));
  EXPECT_EQ(text.substr(16, 16), std::string(16, '\x07'));
  EXPECT_EQ(text.substr(32, 16), std::string("\5\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(text.substr(48, 16), std::string(16, '\0'));
  const std::string optim = text.substr(64 + 2 * 64, 64);
  EXPECT_EQ(optim.substr(0, 16), std::string("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(optim.substr(16, 8), std::string("\0\0\xc0\0\0\0\0\0", 8));
  EXPECT_EQ(optim.substr(24, 8), std::string("\0\x20\0\0\0\0\0\0", 8));
  EXPECT_EQ(optim.substr(32, 16), std::string("\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(text.substr(64 + 5 * 64, 16), std::string(16, '\x64'));
}

// Root of FORMAT.md section 5.3, composed here by hand.
TEST(Sums, RootIsTheHashOfIdPathSizeAndLeaves) {
  const std::string path = "shards/weights/00000-00000.safetensors";
  std::string input("ckpt.root.1\0", 12);
  input += std::string(16, '\x07');
  input += std::string("\x26\0\0\0", 4) + path;
  input += std::string("\1\0\x40\0\0\0\0\0", 8);
  input += std::string(16, '\x64') + std::string(16, '\x65');
  ASSERT_EQ(path.size(), 0x26u);
  const Result<Sums> sums = parse_sums(bytes_of(built()));
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->files[0].root, hash128(input));
}

TEST(Sums, RootTellsSwappedStaleAndRecycledFiles) {
  const std::vector<Hash128> leaves{numbered(1)};
  const Hash128 root = root_hash(numbered(7), "a", 10, leaves);
  EXPECT_NE(root, root_hash(numbered(8), "a", 10, leaves));
  EXPECT_NE(root, root_hash(numbered(7), "b", 10, leaves));
  EXPECT_NE(root, root_hash(numbered(7), "a", 11, leaves));
  EXPECT_NE(root, root_hash(numbered(7), "a", 10, std::vector<Hash128>{numbered(2)}));
}

TEST(Sums, PathFollowsFromClassWriterAndVolume) {
  EXPECT_EQ((FileKey{FileClass::weights, 3, 12}.path()), "shards/weights/00003-00012.safetensors");
  EXPECT_EQ((FileKey{FileClass::optim, 0, 123456}.path()), "shards/optim/00000-123456.safetensors");
  EXPECT_EQ((FileKey{FileClass::blobs, 1, 0}.path()), "blobs/00001-00000.safetensors");
  EXPECT_EQ((FileKey{FileClass::objects, 0, 0}.path()), "blobs/objects.json");
  EXPECT_EQ((FileKey{FileClass::index, 4, 0}.path()), "index/00004.bin");
}

TEST(Sums, LeafCountRoundsUp) {
  EXPECT_EQ(leaf_count(0), 0u);
  EXPECT_EQ(leaf_count(1), 1u);
  EXPECT_EQ(leaf_count(kLeaf), 1u);
  EXPECT_EQ(leaf_count(kLeaf + 1), 2u);
  EXPECT_EQ(leaf_count(~std::uint64_t{0}), std::uint64_t{1} << 42);
}

TEST(Sums, RefuseToBuildWhatCouldNotBeRead) {
  Sums unsorted = sample();
  std::swap(unsorted.files[0], unsorted.files[1]);
  EXPECT_FALSE(build_sums(unsorted));
  Sums few = sample();
  few.leaves.pop_back();
  EXPECT_FALSE(build_sums(few));
  Sums many = sample();
  many.leaves.push_back(numbered(1));
  EXPECT_FALSE(build_sums(many));
}

TEST(Sums, EveryOtherLengthIsCorrupt) {
  const std::string text = built();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const Result<Sums> sums = parse_sums(bytes_of(text).first(size));
    ASSERT_FALSE(sums) << size;
    EXPECT_EQ(sums.error().code, Errc::corrupt);
  }
  EXPECT_FALSE(parse_sums(bytes_of(text + std::string(16, '\0'))));
}

TEST(Sums, ANewerVersionLeafSizeOrClassIsNamedAsSuch) {
  expect_fails(with(built(), 8, 2, 2), Errc::newer, 8);
  expect_fails(with(built(), 8, 0, 2), Errc::newer, 8);
  expect_fails(with(with(built(), 8, 0, 2), 10, 8, 2), Errc::newer, 8);
  expect_fails(with(built(), 12, 23, 4), Errc::newer, 12);
  expect_fails(with(built(), 64, 5, 4), Errc::newer, 64);
}

TEST(Sums, ALaterMinorVersionMayUseWhatIsZeroNow) {
  const std::string later = with(built(), 10, 1, 2);
  EXPECT_TRUE(parse_sums(bytes_of(later)));
  EXPECT_TRUE(parse_sums(bytes_of(with(with(with(later, 48, 7, 8), 64 + 12, 7, 4), 64 + 40, 7, 8))));
  EXPECT_FALSE(parse_sums(bytes_of(with(later, 64 + 32, 7, 8))));
}

TEST(Sums, EveryBrokenRuleIsCorruptAtItsPlace) {
  const std::size_t second = 128;
  expect_fails(with(built(), 0, 'X', 1), Errc::corrupt, 0);
  expect_fails(with(built(), 48, 1, 1), Errc::corrupt, 48);
  expect_fails(with(built(), 32, ~std::uint64_t{0}, 8), Errc::corrupt, 32);  // records past the file
  expect_fails(with(built(), 40, ~std::uint64_t{0}, 8), Errc::corrupt, 32);  // leaves past the file
  expect_fails(with(built(), 32, (std::uint64_t{1} << 58) + 5, 8), Errc::corrupt,
               32);  // 64 * 2^58 wraps to 0: the sizes add up
  expect_fails(with(built(), 40, (std::uint64_t{1} << 60) + 7, 8), Errc::corrupt, 32);  // and so does 16 * 2^60
  expect_fails(with(built(), second + 8, 0, 4), Errc::corrupt, second);                 // the same file twice
  expect_fails(with(built(), second + 12, 1, 4), Errc::corrupt, second);                // reserved
  expect_fails(with(built(), second + 40, 1, 8), Errc::corrupt, second);                // reserved
  expect_fails(with(built(), second + 16, std::uint64_t{1} << 63, 8), Errc::corrupt, second + 16);
  expect_fails(with(built(), second + 16, 8 * kLeaf, 8), Errc::corrupt, second + 16);  // more leaves than the table
  expect_fails(with(built(), second + 24, 0, 8), Errc::corrupt, second + 24);
  expect_fails(with(built(), second + 24, 4097, 8), Errc::corrupt, second + 24);
  expect_fails(with(built(), second + 24, 8192, 8), Errc::corrupt, second + 24);  // past the file
  expect_fails(with(built(), second + 32, 1, 8), Errc::corrupt, second + 32);
  expect_fails(with(built(), 64 + 2 * 64 + 16, 2 * kLeaf, 8), Errc::corrupt, 64 + 3 * 64 + 32);
  expect_fails(with(built(), 64 + 4 * 64 + 24, 4096, 8), Errc::corrupt, 64 + 4 * 64 + 24);  // objects hold no tensors
  expect_fails(with(built(), 64 + 4 * 64 + 8, 1, 4), Errc::corrupt, 64 + 4 * 64);           // a second objects.json
}

TEST(Sums, UnusedLeavesAreCorrupt) {
  Sums sums = sample();
  std::string text = built();
  text.append(16, '\0');
  expect_fails(with(text, 40, 8, 8), Errc::corrupt, 40);
}

}  // namespace
}  // namespace ckpt::universal
