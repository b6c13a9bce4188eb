#include "format/files/safetensors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "format/model/model.hpp"

namespace ckpt::safetensors {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::string file_of(std::string_view json, std::size_t data_bytes) {
  std::string out;
  for (unsigned shift = 0; shift < 64; shift += 8) out += static_cast<char>(json.size() >> shift & 0xff);
  return out + std::string(json) + std::string(data_bytes, 'd');
}

Result<Header> parse(std::string_view file) {
  return parse_header(std::as_bytes(std::span(file)), file.size());
}

void expect_corrupt(std::string_view json, std::size_t data_bytes, std::string_view reason,
                    std::string_view tensor = "a") {
  const auto header = parse(file_of(json, data_bytes));
  ASSERT_FALSE(header) << json;
  EXPECT_EQ(header.error().code, Errc::corrupt) << json;
  EXPECT_NE(header.error().message.find(reason), std::string::npos) << header.error().message;
  EXPECT_EQ(header.error().tensor, tensor) << json;
  ASSERT_TRUE(header.error().offset.has_value()) << json;
  EXPECT_LE(*header.error().offset, 8 + json.size() + data_bytes) << json;
}

TEST(SafetensorsHeader, GivesEntriesInHeaderOrderWithMetadata) {
  const auto header = parse(file_of(
      R"({"b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"k":"v","j":""},)"
      R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},"e":{"dtype":"I64","shape":[5,0],"data_offsets":[4,4]}}  )",
      16));
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "b");
  EXPECT_EQ(header->entries[0].dtype, Dtype::f16);
  EXPECT_EQ(header->entries[0].shape, (Shape{2, 3}));
  EXPECT_EQ(header->entries[0].begin, 4u);
  EXPECT_EQ(header->entries[0].end, 16u);
  EXPECT_EQ(header->entries[1].shape, Shape{});
  EXPECT_EQ(header->entries[2].shape, (Shape{5, 0}));
  EXPECT_EQ(header->metadata, (Metadata{{"k", "v"}, {"j", ""}}));
}

TEST(SafetensorsHeader, RefusesDataThatIsNotTiledExactly) {
  const std::string_view two =
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[%]},"b":{"dtype":"U8","shape":[4],"data_offsets":[#]}})";
  const auto with = [&](std::string_view a, std::string_view b) {
    std::string text(two);
    text.replace(text.find('%'), 1, a);
    text.replace(text.find('#'), 1, b);
    return text;
  };
  EXPECT_TRUE(parse(file_of(with("0,4", "4,8"), 8)));
  EXPECT_TRUE(parse(file_of(with("4,8", "0,4"), 8)));
  expect_corrupt(with("0,4", "5,9"), 9, "no tensor holds", "b");
  expect_corrupt(with("1,5", "5,9"), 9, "no tensor holds", "a");
  expect_corrupt(with("0,4", "3,7"), 7, "two tensors hold", "b");
  expect_corrupt(with("0,4", "0,4"), 4, "two tensors hold", "b");
  expect_corrupt(with("0,4", "4,8"), 7, "cut short", "b");
  expect_corrupt(with("0,4", "4,8"), 9, "1 bytes after the last tensor", "");
  expect_corrupt("{}", 1, "1 bytes after the last tensor", "");
  EXPECT_TRUE(parse(file_of("{}", 0)));
}

TEST(SafetensorsHeader, RefusesSizesThatContradict) {
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "need 8 bytes");
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "need 8 bytes");
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  expect_corrupt(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "overflows");
  expect_corrupt(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "whole byte");
  EXPECT_TRUE(parse(file_of(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3)));
  EXPECT_TRUE(parse(file_of(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3)));
}

TEST(SafetensorsHeader, RefusesFieldsOfTheWrongKind) {
  for (const std::string_view entry :
       {R"({"dtype":"F31","shape":[],"data_offsets":[0,4]})", R"({"dtype":4,"shape":[],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":{},"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[],"data_offsets":[0,4,4]})", R"({"dtype":"F32","shape":[]})",
        R"({"dtype":"F32","data_offsets":[0,4]})", R"({"shape":[],"data_offsets":[0,4]})",
        R"({"dtype":["F32"],"shape":[],"data_offsets":[0,4]})", "{}", "[]", "null", "7", R"("F32")"}) {
    const auto header = parse(file_of("{\"a\":" + std::string(entry) + "}", 4));
    ASSERT_FALSE(header) << entry;
    EXPECT_EQ(header.error().code, Errc::corrupt) << entry;
    EXPECT_EQ(header.error().tensor, "a") << entry;
  }
}

TEST(SafetensorsHeader, MetadataHoldsTextOnly) {
  for (const std::string_view value : {R"({"k":1})", R"({"k":null})", R"({"k":{}})", R"({"k":["v"]})", "[]", R"("v")"})
    EXPECT_FALSE(parse(file_of("{\"__metadata__\":" + std::string(value) + "}", 0))) << value;
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":{}})", 0)));
}

TEST(SafetensorsHeader, RefusesDuplicateKeysEvenWhenEscapedDifferently) {
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
      1, "duplicate key", "");
  expect_corrupt(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1, "duplicate key", "");
}

TEST(SafetensorsHeader, AcceptsWhatTheReferenceAcceptsBeyondTheReadme) {
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":null})", 0)));
  const auto header = parse(
      file_of(" \n\t\r"
              R"({"__metadata__":null,"a":{"x":[{"y":[[1.5]]},"z",null],"dtype":"U8","shape":[1],"data_offsets":[0,1],)"
              R"("stride":7},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
              2));
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].shape, Shape{1});
  EXPECT_TRUE(header->metadata.empty());
}

TEST(SafetensorsHeader, WhatItCannotHoldOfValidFilesIsUnsupported) {
  const auto header = parse(
      file_of(R"({"a":{"dtype":"U8","shape":[0,9223372036854775808,9223372036854775808],"data_offsets":[0,0]}})", 0));
  EXPECT_TRUE(header || header.error().code == Errc::unsupported);
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[9223372036854775808,9223372036854775808,0],"data_offsets":[0,0]}})", 0,
                 "overflows");
}

TEST(SafetensorsHeader, RefusesForeignText) {
  expect_corrupt("  ", 0, "does not begin", "");
  expect_corrupt("[]", 0, "does not begin", "");
  expect_corrupt("", 0, "does not begin", "");
}

TEST(SafetensorsHeader, ChecksTheLengthBeforeAnythingElse) {
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("1234567"));
  std::string huge = file_of("{}", 0);
  huge[7] = '\x7f';
  const auto absurd = parse(huge);
  ASSERT_FALSE(absurd);
  EXPECT_NE(absurd.error().message.find("over the limit"), std::string::npos);
  std::string longer = file_of("{}", 0);
  longer[0] = 3;
  const auto past = parse(longer);
  ASSERT_FALSE(past);
  EXPECT_NE(past.error().message.find("past the end"), std::string::npos);
}

TEST(SafetensorsHeader, RefusesMoreThan64Dimensions) {
  std::string ones = "1";
  for (int i = 0; i < 63; ++i) ones += ",1";
  EXPECT_TRUE(parse(file_of(R"({"a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 1)));
  const auto more = parse(file_of(R"({"a":{"dtype":"U8","shape":[)" + ones + R"(,1],"data_offsets":[0,1]}})", 1));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Errc::unsupported);
  EXPECT_NE(more.error().message.find("64 dimensions"), std::string::npos);
}

TEST(SafetensorsHeader, BuiltHeadersBeginDataOnTheAlignmentAndReadBack) {
  const Shape scalar{}, matrix{3, 5}, empty{0, 7};
  const std::vector<NewEntry> entries{
      {"w \"q\"\n", Dtype::i64, matrix}, {"s", Dtype::bf16, scalar}, {"e", Dtype::f32, empty}};
  for (const std::uint64_t alignment : {8u, 64u, 4096u}) {
    const auto built = build_header(entries, {{"format", "pt"}, {"note", "grüß \"x\""}}, alignment);
    ASSERT_TRUE(built) << built.error().message;
    EXPECT_EQ(built->bytes.size() % alignment, 0u);
    EXPECT_EQ(built->offsets,
              (std::vector<std::uint64_t>{built->bytes.size(), built->bytes.size() + 120, built->bytes.size() + 122}));
    EXPECT_EQ(built->file_bytes, built->bytes.size() + 122);
    const auto header = parse_header(std::as_bytes(std::span(built->bytes)), built->file_bytes);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->metadata, (Metadata{{"format", "pt"}, {"note", "grüß \"x\""}}));
    ASSERT_EQ(header->entries.size(), 3u);
    EXPECT_EQ(header->entries[0].name, "w \"q\"\n");
    EXPECT_EQ(header->entries[0].shape, matrix);
    EXPECT_EQ(header->data_begin + header->entries[1].begin, built->offsets[1]);
  }
}

TEST(SafetensorsHeader, RefusesToBuildWhatTheFormatCannotHold) {
  const Shape half{3};
  EXPECT_EQ(build_header(std::vector<NewEntry>{{"__metadata__", Dtype::u8, {}}}, {}).error().code, Errc::unsupported);
  EXPECT_EQ(build_header(std::vector<NewEntry>{{"a", Dtype::f4, half}}, {}).error().code, Errc::corrupt);
  const std::string name(kMaxHeaderBytes, 'n');
  EXPECT_EQ(build_header(std::vector<NewEntry>{{name, Dtype::u8, {}}}, {}).error().code, Errc::unsupported);
}

TEST(SafetensorsHeader, GenuineFilesParseAndRebuildToTheSameEntries) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CKPT_GOLDEN_DIR "/safetensors")) {
    if (entry.path().extension() != ".safetensors" || entry.path().filename() == "truth.safetensors") continue;
    ++files;
    const std::string bytes = read(entry.path());
    const auto header = parse(bytes);
    ASSERT_TRUE(header) << entry.path() << ": " << header.error().message;
    std::vector<NewEntry> entries;
    for (const Entry& e : header->entries) entries.push_back({e.name, e.dtype, e.shape});
    const auto built = build_header(entries, header->metadata);
    ASSERT_TRUE(built);
    // The reference writes the same text: the whole header is equal, byte for byte.
    EXPECT_TRUE(built->bytes == bytes.substr(0, built->bytes.size())) << entry.path();
    EXPECT_EQ(built->file_bytes, bytes.size()) << entry.path();
  }
  EXPECT_EQ(files, 15);
}

TEST(SafetensorsHeader, BrokenFilesAreCorrupt) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CKPT_GOLDEN_DIR "/broken")) {
    if (!entry.path().filename().string().starts_with("st_")) continue;
    for (const auto& file : std::filesystem::directory_iterator(entry.path() / "ckpt")) {
      ++files;
      const auto header = parse(read(file.path()));
      ASSERT_FALSE(header) << file.path();
      EXPECT_EQ(header.error().code, Errc::corrupt) << file.path();
    }
  }
  EXPECT_EQ(files, 12);
}

}  // namespace
}  // namespace ckpt::safetensors
