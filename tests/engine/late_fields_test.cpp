// Checksums that end up in the file: right whatever the order of the leaves, on any rank, and masked where it is
// hashed.
#include "engine/run/late_fields.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "format/hash.hpp"

namespace ckpt::test {
namespace {

constexpr std::uint64_t kBegin = 100;
constexpr std::uint64_t kEnd = 2 * kLeafBytes + 50;  // a range over three leaves
constexpr std::uint64_t kSmallBegin = kEnd + 100;    // one inside a leaf
constexpr std::uint64_t kSmallEnd = kSmallBegin + 1000;
constexpr std::uint64_t kAcross = 3 * kLeafBytes - 2;  // a field that lies in two leaves

TargetFile file_with_fields() {
  TargetFile file{.path = "x", .bytes = 3 * kLeafBytes + 64};
  file.late = {{kEnd, {kBegin, kEnd}},
               {kEnd + 8, {kSmallBegin, kSmallEnd}},
               {kAcross, {kSmallBegin, kSmallEnd}},
               {3 * kLeafBytes + 8, {kBegin, kEnd}}};
  return file;
}

std::string content() {
  std::string out(3 * kLeafBytes + 64, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 + i / 1000);
  for (const LateField& field : file_with_fields().late) std::memset(out.data() + field.offset, 0, LateField::kBytes);
  return out;
}

std::span<std::byte> leaf_of(std::string& bytes, std::uint64_t leaf) {
  const std::size_t begin = leaf * kLeafBytes;
  return std::as_writable_bytes(std::span(bytes))
      .subspan(begin, std::min<std::size_t>(kLeafBytes, bytes.size() - begin));
}

std::uint32_t crc_of(const std::string& bytes, Extent range) {
  return crc32(0, std::as_bytes(std::span(bytes)).subspan(range.begin, range.size()));
}

std::uint32_t field_at(const std::string& bytes, std::uint64_t offset) {
  std::uint32_t out = 0;
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

TEST(LateFields, FieldsAreFilledInOnceTheirRangeIsKnown) {
  std::string bytes = content();
  LateFields fields({file_with_fields()});
  for (std::uint64_t leaf = 0; leaf < 4; ++leaf) {
    fields.take(0, leaf, leaf_of(bytes, leaf));
    fields.fill(0, leaf, leaf_of(bytes, leaf));
  }
  EXPECT_EQ(field_at(bytes, kEnd), crc_of(content(), {kBegin, kEnd}));
  EXPECT_EQ(field_at(bytes, kEnd + 8), crc_of(content(), {kSmallBegin, kSmallEnd}));
  EXPECT_EQ(field_at(bytes, 3 * kLeafBytes + 8), crc_of(content(), {kBegin, kEnd}));
  EXPECT_EQ(field_at(bytes, kAcross), 0u) << "it lies in two leaves, which may be written by two workers";
}

TEST(LateFields, AFieldThatIsReadIsMaskedAndComparedByValue) {
  std::string bytes = content();
  for (const LateField& field : file_with_fields().late) {
    const std::uint32_t crc = crc_of(content(), field.covers);
    std::memcpy(bytes.data() + field.offset, &crc, sizeof crc);
  }
  for (const bool damaged : {false, true}) {
    std::string read = bytes;
    if (damaged) read[kAcross + 3] = static_cast<char>(read[kAcross + 3] ^ 1);
    LateFields first({file_with_fields()});
    LateFields second({file_with_fields()});  // of another rank
    for (const std::uint64_t leaf : {std::uint64_t{3}, std::uint64_t{1}}) first.take(0, leaf, leaf_of(read, leaf));
    for (const std::uint64_t leaf : {std::uint64_t{2}, std::uint64_t{0}}) second.take(0, leaf, leaf_of(read, leaf));
    EXPECT_TRUE(read == content()) << "fields count as zero";
    first.absorb(second.packed_records());
    const auto wrong = first.wrong();
    ASSERT_EQ(wrong.size(), damaged ? 1u : 0u);
    if (!damaged) continue;
    EXPECT_EQ(wrong[0].offset, kAcross);
    EXPECT_EQ(wrong[0].computed, crc_of(content(), {kSmallBegin, kSmallEnd}));
  }
}

TEST(LateFields, LeavesThatStandThereAlreadyGiveTheirParts) {
  std::string bytes = content();
  LateFields before({file_with_fields()});
  before.take(0, 0, leaf_of(bytes, 0));
  before.take(0, 1, leaf_of(bytes, 1));
  bytes[kLeafBytes + 5] =
      static_cast<char>(bytes[kLeafBytes + 5] ^ 1);  // leaf 1 turned out to be wrong, and is made anew
  LateFields fields({file_with_fields()});
  fields.adopt(before, {true, false, false, false});
  for (std::uint64_t leaf = 1; leaf < 4; ++leaf) {
    fields.take(0, leaf, leaf_of(bytes, leaf));
    fields.fill(0, leaf, leaf_of(bytes, leaf));
  }
  EXPECT_EQ(field_at(bytes, kEnd), crc_of(bytes, {kBegin, kEnd}));
}

}  // namespace
}  // namespace ckpt::test
