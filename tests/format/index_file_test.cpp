#include "format/universal/index_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ckpt::universal {
namespace {

const std::vector<Shape> kShapes{{4, 6}, {}, {0, 3}, {10}};

IndexFile sample() {
  IndexFile index{.id = hash128("id"), .writer = 7};
  index.chunks = {{.row = 0, .volume = 2, .chunk = {.box = {{0, 3}, {4, 3}}, .flat = Extent{2, 5}}, .offset = 4096},
                  {.row = 0, .volume = 0, .chunk = {.box = {{0, 0}, {4, 3}}}, .offset = 8192},
                  {.row = 0, .volume = 1, .chunk = {.box = Box::whole({4, 6}), .flat = Extent{5, 9}}, .offset = 4100},
                  {.row = 1, .volume = 0, .chunk = {.box = Box::whole({})}, .offset = 5000},
                  {.row = 2, .volume = 0, .chunk = {.box = Box::whole({0, 3})}, .offset = 5008},
                  {.row = 3, .volume = 0, .chunk = {.box = {{2}, {3}}}, .offset = 6000}};
  return index;
}

Result<IndexFile> parsed(const std::string& text) {
  return parse_index_file(std::as_bytes(std::span(text)), kShapes);
}
std::string built() {
  return build_index_file(sample(), kShapes).value();
}

std::string with(std::string text, std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) text[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}
std::uint64_t number(const std::string& text, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(text[at + i]);
  return value;
}

TEST(IndexFile, ReadsBackSorted) {
  const auto out = parsed(built());
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->id, sample().id);
  EXPECT_EQ(out->writer, 7u);
  std::vector<IndexedChunk> in = sample().chunks;
  ASSERT_EQ(out->chunks.size(), in.size());
  const std::vector<std::size_t> order{1, 0, 2, 3, 4, 5};
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out->chunks[i].row, in[order[i]].row);
    EXPECT_EQ(out->chunks[i].volume, in[order[i]].volume);
    EXPECT_EQ(out->chunks[i].chunk, in[order[i]].chunk) << i;
    EXPECT_EQ(out->chunks[i].offset, in[order[i]].offset);
  }
  EXPECT_EQ(build_index_file(*out, kShapes).value(), built());
}

TEST(IndexFile, StandsWhereTheSpecificationSays) {
  const std::string text = built();
  EXPECT_EQ(text.substr(0, 8), "CKPTINDX");
  EXPECT_EQ(text.substr(8, 8), std::string("\1\0\0\0\7\0\0\0", 8));
  EXPECT_EQ(number(text, 32), 6u);
  EXPECT_EQ(number(text, 40), 4u + 6u + 2u);
  EXPECT_EQ(text.size(), 64u + 6u * 64u + 12u * 8u);
  const std::size_t second = 64 + 64;  // the flat piece of the right half of the rows
  EXPECT_EQ(number(text, second), std::uint64_t{2} << 32);
  EXPECT_EQ(number(text, second + 8), 3u) << "the first element of its box";
  EXPECT_EQ(number(text, second + 16), 24u);
  EXPECT_EQ(number(text, second + 24), 24u);
  EXPECT_EQ(number(text, second + 32), 4096u);
  EXPECT_EQ(number(text, second + 40), 3u);
  EXPECT_EQ(number(text, second + 48), 4u) << "its words follow those of the box before";
  EXPECT_EQ(number(text, second + 56), 1u);
  const std::size_t third = second + 64;
  EXPECT_EQ(number(text, third + 24), 24u) << "the reach of the one before";
  EXPECT_EQ(number(text, third + 48), ~std::uint64_t{0});
}

TEST(IndexFile, EveryOtherLengthIsCorrupt) {
  const std::string text = built();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto out = parsed(text.substr(0, size));
    ASSERT_FALSE(out) << size;
    EXPECT_EQ(out.error().code, Errc::corrupt);
  }
  EXPECT_FALSE(parsed(text + std::string(8, '\0')));
}

TEST(IndexFile, EveryByteCounts) {
  // But for the id, the writer and the places, which others check, and the minor version, no byte may change unnoticed.
  const std::string text = built();
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool in_record = at >= 64 && at < 64 + 6 * 64;
    const std::size_t field = (at - 64) % 64;
    if ((at >= 10 && at < 32) || (in_record && field >= 32 && field < 40)) continue;
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    const auto out = parsed(changed);
    if (!out) continue;
    EXPECT_EQ(build_index_file(*out, kShapes).value(), changed) << "byte " << at;
  }
}

TEST(IndexFile, BrokenRulesAreCorruptAtTheirPlace) {
  const std::string text = built();
  const auto expect_fails = [](const std::string& bad, Errc code, std::uint64_t offset) {
    const auto out = parsed(bad);
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().code, code) << out.error().message;
    EXPECT_EQ(out.error().offset, offset) << out.error().message;
  };
  expect_fails(with(text, 8, 2, 2), Errc::newer, 8);
  expect_fails(with(text, 0, 0, 1), Errc::corrupt, 0);
  expect_fails(with(text, 32, std::uint64_t{1} << 60, 8), Errc::corrupt, 32);
  expect_fails(with(text, 40, std::uint64_t{1} << 60, 8), Errc::corrupt, 40);
  expect_fails(with(text, 48, 1, 8), Errc::corrupt, 48);
  expect_fails(with(text, 64, 4, 4), Errc::corrupt, 64);               // no such row
  expect_fails(with(text, 64 + 4, 5, 4), Errc::corrupt, 64 + 3 * 64);  // volumes 5, 2, 1
  expect_fails(with(text, 64 + 8, 1, 8), Errc::corrupt, 64 + 8);
  expect_fails(with(text, 64 + 24, 25, 8), Errc::corrupt, 64 + 24);
  expect_fails(with(text, 64 + 40, 13, 8), Errc::corrupt, 64 + 40);
  expect_fails(with(text, 64 + 48, 4, 8), Errc::corrupt, 64 + 48);
  expect_fails(with(text, 64 + 56, 2, 8), Errc::corrupt, 64 + 56);
  const std::size_t words = 64 + 6 * 64;
  expect_fails(with(text, words, ~std::uint64_t{0}, 8), Errc::corrupt, 64);       // an offset outside
  expect_fails(with(text, words + 16, ~std::uint64_t{0}, 8), Errc::corrupt, 64);  // a size that overflows
}

TEST(IndexFile, RefusesToBuildWhatCouldNotBeRead) {
  const auto builds = [](const IndexedChunk& chunk) {
    return build_index_file({.chunks = {chunk}}, kShapes).has_value();
  };
  EXPECT_TRUE(builds({.row = 0, .chunk = {.box = {{1, 0}, {1, 6}}}}));
  EXPECT_FALSE(builds({.row = 4, .chunk = {.box = {{1, 0}, {1, 6}}}}));
  EXPECT_FALSE(builds({.row = 0, .chunk = {.box = {{4, 0}, {1, 6}}}}));
  EXPECT_FALSE(builds({.row = 0, .chunk = {.box = {{1, 0}, {0, 6}}}}));
  EXPECT_FALSE(builds({.row = 0, .chunk = {.box = {{1}, {1}}}}));
  EXPECT_FALSE(builds({.row = 0, .chunk = {.box = {{1, 0}, {1, 6}}, .flat = Extent{3, 7}}}));
  EXPECT_FALSE(builds({.row = 0, .chunk = {.box = {{1, 0}, {1, 6}}, .flat = Extent{3, 3}}}));
}

}  // namespace
}  // namespace ckpt::universal
