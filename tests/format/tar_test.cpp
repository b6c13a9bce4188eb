#include "format/files/tar.hpp"

#include <gtest/gtest.h>

#include "support/tar_writer.hpp"

namespace ckpt::tar {
namespace {

using test::TarWriter;

// A header of which one field is changed, with a right checksum.
std::string header_with(std::size_t at, std::string_view text) {
  std::string block = TarWriter::header("folder/name", 1234, '0');
  std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
  TarWriter::seal(block);
  return block;
}

Errc code_of(const std::string& block) {
  const auto header = parse_header(block);
  return header ? Errc{} : header.error().code;
}

TEST(Tar, AHeaderSaysNameKindAndSize) {
  const std::string block = TarWriter::header("folder/name", 1234, '0');
  EXPECT_TRUE(is_tar(block));
  const auto header = parse_header(block);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->name, "folder/name");
  EXPECT_EQ(header->kind, Header::Kind::file);
  EXPECT_EQ(header->bytes, 1234u);
  const auto end = parse_header(std::string(kBlockBytes, '\0'));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Header::Kind::end);
}

TEST(Tar, ANameHasAPrefixInUstarOnly) {
  const auto posix = parse_header(header_with(345, "long/prefix"));
  ASSERT_TRUE(posix);
  EXPECT_EQ(posix->name, "long/prefix/folder/name");
  std::string gnu = header_with(345, "12345670123");  // a time there
  std::copy_n("ustar  ", 8, gnu.begin() + 257);
  TarWriter::seal(gnu);
  EXPECT_TRUE(is_tar(gnu));
  const auto header = parse_header(gnu);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->name, "folder/name");
}

TEST(Tar, SizesAreOctalOrBinary) {
  const std::string_view binary("\x80\0\0\0\0\0\0\1\0\0\0\2", 12);  // 2^32 + 2
  const std::string_view too_large("\x80\xff\0\0\0\0\0\1\0\0\0\2", 12);
  EXPECT_EQ(parse_header(header_with(124, binary))->bytes, (std::uint64_t{1} << 32) + 2);
  EXPECT_EQ(parse_header(header_with(124, "    17 \0    "))->bytes, 15u);
  EXPECT_EQ(parse_header(header_with(124, "777777777777"))->bytes, (std::uint64_t{1} << 36) - 1);
  EXPECT_EQ(code_of(header_with(124, too_large)), Errc::corrupt);
  EXPECT_EQ(code_of(header_with(124, "00000000009")), Errc::corrupt);
  EXPECT_EQ(code_of(header_with(124, "-0000000001")), Errc::corrupt);
}

TEST(Tar, LinksAndDevicesHaveNoData) {
  for (const char type : {'1', '2', '3', '4', '5', '6'})
    EXPECT_EQ(parse_header(TarWriter::header("name", 512, type))->bytes, 0u) << type;
  for (const char type : {'\0', '0', '7', 'L', 'x', 'g', 'V'})
    EXPECT_EQ(parse_header(TarWriter::header("name", 512, type))->bytes, 512u) << type;
  EXPECT_EQ(parse_header(TarWriter::header("folder/", 0, '\0'))->kind, Header::Kind::directory);
  EXPECT_EQ(code_of(TarWriter::header("name", 512, 'S')), Errc::unsupported);
}

TEST(Tar, AnyChangedByteOfAHeaderShows) {
  const std::string sound = TarWriter::header("folder/name", 1234, '0');
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    std::string block = sound;
    block[i] = static_cast<char>(block[i] ^ 1);
    if (i == 154 || i == 155) continue;  // what ends the checksum
    EXPECT_EQ(code_of(block), Errc::corrupt) << i;
    EXPECT_FALSE(is_tar(block)) << i;
  }
}

TEST(Tar, RecordsSayNameLinkAndSize) {
  const auto records = parse_records(TarWriter::record("mtime", "1.5") + TarWriter::record("path", "a/b=c\nd") +
                                     TarWriter::record("linkpath", "e") + TarWriter::record("size", "8589934592"));
  ASSERT_TRUE(records) << records.error().message;
  EXPECT_EQ(records->name, "a/b=c\nd");
  EXPECT_EQ(records->link, "e");
  EXPECT_TRUE(records->has_bytes);
  EXPECT_EQ(records->bytes, std::uint64_t{1} << 33);
  EXPECT_FALSE(parse_records("")->has_bytes);
}

TEST(Tar, DamagedRecordsAreRefused) {
  for (const char* text : {"x", "5", "5 a=b\n", "99 a=b\n", "0 a=b\n", "6 ab=\n", "-6 a=b\n", "6 a b\n", "11 size=-1\n",
                           "99999999999999999999 a=b\n", "2 \n"}) {
    const auto records = parse_records(text);
    ASSERT_FALSE(records && (records->has_bytes || !records->name.empty())) << text;
  }
  for (const char* text : {"5 a=b\n", "99 a=b\n", "6 a b\n", "11 size=-1\n"}) EXPECT_FALSE(parse_records(text)) << text;
  const auto sparse = parse_records(TarWriter::record("GNU.sparse.map", "0,1") + TarWriter::record("path", "w.bin"));
  ASSERT_FALSE(sparse);
  EXPECT_EQ(sparse.error().code, Errc::unsupported);
  EXPECT_NE(sparse.error().message.find("w.bin"), std::string::npos) << sparse.error().message;
}

TEST(Tar, MemberPathsStayInTheArchive) {
  EXPECT_EQ(*member_path("./a//b/./c/"), "a/b/c");
  EXPECT_EQ(*member_path("/a"), "a");
  EXPECT_EQ(*member_path("."), "");
  EXPECT_EQ(*member_path(""), "");
  EXPECT_EQ(*member_path("..a/b.."), "..a/b..");
  for (const char* name : {"..", "../a", "a/../b", "a/.."}) EXPECT_EQ(member_path(name).error().code, Errc::refused);
  EXPECT_EQ(member_path(std::string_view("a\0b", 3)).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ckpt::tar
