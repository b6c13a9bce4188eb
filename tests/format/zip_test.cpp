#include "format/files/zip.hpp"

#include <gtest/gtest.h>

#include "support/zip_writer.hpp"

namespace ckpt::zip {
namespace {

using test::ZipWriter;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Result<std::vector<Entry>> entries_of(std::string_view zip, Tail* tail_out = nullptr) {
  const std::string_view last = zip.substr(zip.size() - std::min<std::size_t>(zip.size(), kTailBytes));
  CKPT_TRY(const Tail tail, find_tail(bytes_of(last), zip.size()));
  if (tail_out != nullptr) *tail_out = tail;
  return parse_directory(bytes_of(zip.substr(tail.directory_offset, tail.directory_bytes)), tail, zip.size());
}

Errc code_of(std::string_view zip) {
  const auto entries = entries_of(zip);
  return entries ? Errc{} : entries.error().code;
}

// The data of an entry, found through its local header.
std::string data_of(std::string_view zip, const Entry& entry, const Tail& tail) {
  const auto begin = data_offset(bytes_of(zip.substr(entry.header_offset, kLocalHeaderBytes)), entry, tail);
  EXPECT_TRUE(begin) << (begin ? "" : begin.error().message);
  return begin ? std::string(zip.substr(*begin, entry.bytes)) : "";
}

TEST(Zip, EntriesAreFoundWithTheirData) {
  for (const bool zip64 : {false, true}) {
    ZipWriter writer;
    writer.zip64 = zip64;
    writer.add("a/data.pkl", "pickle")
        .add("a/data/0", "", {.local_extra = "FB"})
        .add("a/data/1", "storage", {.local_extra = "FBxx"});
    for (const std::string& zip : {writer.finish(), writer.finish("a comment")}) {
      Tail tail;
      const auto entries = entries_of(zip, &tail);
      ASSERT_TRUE(entries) << entries.error().message;
      ASSERT_EQ(entries->size(), 3u);
      EXPECT_EQ((*entries)[0].name, "a/data.pkl");
      EXPECT_EQ(data_of(zip, (*entries)[0], tail), "pickle");
      EXPECT_EQ((*entries)[1].bytes, 0u);
      EXPECT_EQ(data_of(zip, (*entries)[2], tail), "storage");
      EXPECT_EQ((*entries)[2].crc, crc32(0, bytes_of("storage")));
    }
  }
}

TEST(Zip, ACommentThatLooksLikeAnEndRecordDoesNotMislead) {
  const std::string inner = ZipWriter().add("x", "y").finish();
  const std::string zip = ZipWriter().add("a/data.pkl", "pickle").finish(inner.substr(inner.size() - 22, 22) + "tail");
  const auto entries = entries_of(zip);
  ASSERT_TRUE(entries) << entries.error().message;
  EXPECT_EQ(entries->front().name, "a/data.pkl");
}

TEST(Zip, EveryTruncationIsCorrupt) {
  const std::string zip = ZipWriter().add("a/data.pkl", "pickle").add("a/data/0", "storage").finish();
  for (std::size_t size = 0; size < zip.size(); ++size) {
    EXPECT_EQ(code_of(std::string_view(zip).substr(0, size)), Errc::corrupt) << size;
  }
}

TEST(Zip, NamesThatLeaveTheArchiveAreRefused) {
  using namespace std::string_literals;
  for (const std::string& name : {"../x"s, "a/../../x"s, "a/.."s, ".."s, "/etc/passwd"s, "a\\..\\x"s, "a\0b"s}) {
    EXPECT_EQ(code_of(ZipWriter().add(name, "x").finish()), Errc::refused) << name;
  }
  EXPECT_EQ(code_of(ZipWriter().add("a/..b", "x").add("a/...", "y").finish()), Errc{});
}

TEST(Zip, EntriesNoFrameworkWritesAreRefused) {
  EXPECT_EQ(code_of(ZipWriter().add("a", "x", {.flags = 1}).finish()), Errc::refused);
  EXPECT_EQ(code_of(ZipWriter().add("a", "x").add("a", "y").finish()), Errc::refused);
}

TEST(Zip, ACompressedEntryIsListedAndRefusedWhereItIsNeeded) {
  const auto entries = entries_of(ZipWriter().add("a", "x", {.method = 8}).add("b", "y").finish());
  ASSERT_TRUE(entries) << entries.error().message;
  EXPECT_TRUE((*entries)[0].compressed);
  const auto needed = check_stored((*entries)[0]);
  ASSERT_FALSE(needed);
  EXPECT_EQ(needed.error().code, Errc::refused);
  EXPECT_NE(needed.error().message.find("'a'"), std::string::npos) << needed.error().message;
  EXPECT_TRUE(check_stored((*entries)[1]));
}

TEST(Zip, EntriesThatOverlapAreCorrupt) {
  EXPECT_EQ(code_of(ZipWriter().add("a", "xxxx", {.stored_more = 2}).add("b", "y").finish()), Errc::corrupt);
  EXPECT_EQ(code_of(ZipWriter().add("a", "xxxx").add("b", "y", {.stored_more = 2}).finish()), Errc::corrupt);
  EXPECT_EQ(code_of(ZipWriter().add("a", "xxxx").add("b", "y", {.header_shift = -4}).finish()), Errc::corrupt);
  ZipWriter huge;
  huge.zip64 = true;
  EXPECT_EQ(code_of(huge.add("a", "xxxx", {.stored_more = -10}).finish()), Errc::corrupt);  // 2**64 - 6 bytes
}

TEST(Zip, ADirectoryThatContradictsTheEndRecordIsCorrupt) {
  std::string zip = ZipWriter().add("a", "x").add("b", "y").finish();
  const std::size_t end = zip.size() - 22;
  const auto with = [&](std::size_t at, char value) {
    std::string changed = zip;
    changed[end + at] = value;
    return code_of(changed);
  };
  EXPECT_EQ(with(10, 3), Errc::corrupt);     // one entry more
  EXPECT_EQ(with(13, 0x7f), Errc::corrupt);  // a larger directory
  EXPECT_EQ(with(16, 1), Errc::corrupt);     // it begins elsewhere
  EXPECT_EQ(with(4, 1), Errc::corrupt);      // one of several disks
}

TEST(Zip, AZip64RecordThatIsNotWhereItsLocatorSaysIsCorrupt) {
  ZipWriter writer;
  writer.zip64 = true;
  std::string zip = writer.add("a", "x").finish();
  zip[zip.size() - 22 - 20 + 8] ^= 1;
  EXPECT_EQ(code_of(zip), Errc::corrupt);
}

TEST(Zip, LocalHeadersMustBeThereAndEndBeforeTheDirectory) {
  const std::string zip = ZipWriter().add("a", "x").finish();
  Tail tail;
  const auto entries = entries_of(zip, &tail);
  ASSERT_TRUE(entries);
  std::string header = zip.substr(0, kLocalHeaderBytes);
  EXPECT_TRUE(data_offset(bytes_of(header), entries->front(), tail));
  header[28] = 100;
  EXPECT_EQ(data_offset(bytes_of(header), entries->front(), tail).error().code, Errc::corrupt);
  EXPECT_EQ(data_offset(bytes_of("no header at all, but long enough"), entries->front(), tail).error().code,
            Errc::corrupt);
  EXPECT_EQ(data_offset(bytes_of("PK"), entries->front(), tail).error().code, Errc::corrupt);
}

TEST(Zip, OnlyAnArchiveOfZerosHasNoChecksums) {
  EXPECT_TRUE(without_crc(std::vector<Entry>{{.bytes = 4, .crc = 0}, {.bytes = 0, .crc = 0}}));
  EXPECT_FALSE(without_crc(std::vector<Entry>{{.bytes = 4, .crc = 0}, {.bytes = 4, .crc = 7}}));
}

}  // namespace
}  // namespace ckpt::zip
