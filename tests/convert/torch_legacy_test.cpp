#include "convert/torch_legacy.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/file_bytes.hpp"
#include "support/pickle_writer.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

using test::PickleWriter;
using namespace std::string_literals;

/// A file of three storages: "7" of 4 floats, "8" of 3 bytes, "9" of 2 doubles, each with a tensor over all of it.
class TorchLegacyTest : public testing::Test {
 protected:
  void SetUp() override {
    auto io = open_io(IoKind::threads);
    ASSERT_TRUE(io) << io.error().message;
    io_ = *std::move(io);
  }

  static std::string preamble(std::int64_t protocol = 1001) {
    const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
    return magic + PickleWriter().integer(protocol).stop() +
           PickleWriter().raw("}").text("little_endian").raw("\x88s").stop();
  }
  /// `view`: what stands in the place of view_metadata.
  static PickleWriter& tensor(PickleWriter& writer, std::string_view key, std::string_view type, std::int64_t count,
                              std::string_view view = "N") {
    writer.global("torch._utils", "_rebuild_tensor_v2").raw("((").text("storage").global("torch", type).text(key);
    writer.text("cpu").integer(count).raw(view).raw("tQ").integer(0).tuple_of({count}).tuple_of({1});
    return writer.raw("\x89").ordered_dict().raw("tR");
  }
  static std::string object(std::string_view view = "N") {
    PickleWriter writer;
    writer.raw("(");
    tensor(writer, "7", "FloatStorage", 4, view);
    tensor(writer, "8", "ByteStorage", 3);
    tensor(writer, "9", "DoubleStorage", 2);
    return writer.raw("l").stop();
  }
  static std::string keys() { return PickleWriter().raw("(").text("7").text("8").text("9").raw("l").stop(); }
  static std::string storage(std::uint64_t count, std::size_t bytes, char fill) {
    return PickleWriter(0).little(count, 8).raw(std::string(bytes, fill)).stop().substr(0, 8 + bytes);
  }
  static std::string storages() { return storage(4, 16, 'a') + storage(3, 3, 'b') + storage(2, 16, 'c'); }

  Result<TorchArchive> open(const std::string& bytes) {
    const std::string path = temp_.path() + "/file.pt";
    test::write_file(path, bytes);
    CKPT_TRY(const FileHandle file, io_->open(path, {}));
    auto archive = open_torch_archive(*io_, file, path, {0, bytes.size()});
    CKPT_CHECK(io_->close(file));
    return archive;
  }
  void expect_refused(const std::string& bytes, Errc code, std::string_view words) {
    const auto archive = open(bytes);
    ASSERT_FALSE(archive) << words;
    EXPECT_EQ(archive.error().code, code) << archive.error().message;
    EXPECT_NE(archive.error().message.find(words), std::string::npos) << archive.error().message;
    EXPECT_NE(archive.error().message.find("file.pt"), std::string::npos) << archive.error().message;
  }

  TempDir temp_;
  std::unique_ptr<Io> io_;
};

TEST_F(TorchLegacyTest, StoragesStandOneAfterAnotherBehindTheirCounts) {
  const std::string head = preamble() + object() + keys();
  const auto archive = open(head + storages());
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_FALSE(archive->has_crc);
  EXPECT_EQ(archive->pickle_bytes.begin, preamble().size());
  EXPECT_EQ(archive->pickle_bytes.size(), object().size());
  ASSERT_EQ(archive->storages.size(), 3u);
  EXPECT_EQ(archive->storages.at("7").offset, head.size() + 8);
  EXPECT_EQ(archive->storages.at("8").offset, head.size() + 8 + 16 + 8);
  EXPECT_EQ(archive->storages.at("8").bytes, 3u);
  const auto items = archive->graph.items(archive->graph.root());
  ASSERT_EQ(items.size(), 3u);
  const auto view = torch::as_tensor(archive->graph, items[2]);
  ASSERT_TRUE(view && *view);
  const auto where = archive->locate(**view, 5);
  ASSERT_TRUE(where) << where.error().message;
  EXPECT_EQ(where->offset, head.size() + 8 + 16 + 8 + 3 + 8);
  EXPECT_EQ(where->dtype, Dtype::f64);
  EXPECT_EQ(where->file, 5u);
  EXPECT_FALSE(where->crc);
}

TEST_F(TorchLegacyTest, IsRecognisedInEveryProtocol) {
  const std::string number = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  const std::string frame = "\x95\x0d\0\0\0\0\0\0\0"s;
  const std::string rest = preamble().substr(2 + number.size()) + object() + keys() + storages();
  for (const std::string& magic : {"L119547037146038801333356L\n."s, "\x80\x02"s + number, "\x80\x03"s + number,
                                   "\x80\x04"s + frame + number, "\x80\x05"s + frame + number}) {
    const auto archive = open(magic + rest);
    ASSERT_TRUE(archive) << archive.error().message;
    EXPECT_EQ(archive->storages.size(), 3u);
  }
  EXPECT_FALSE(is_legacy_torch("\x80\x04" + frame + "K\1."));
  EXPECT_FALSE(is_legacy_torch("\x80"));
  EXPECT_FALSE(is_legacy_torch(""));
}

TEST_F(TorchLegacyTest, AnObjectLongerThanTheFirstReadIsReadWhole) {
  PickleWriter writer;
  writer.raw("(").text(std::string(300'000, 'x'));
  tensor(writer, "7", "FloatStorage", 4);
  const auto archive = open(preamble() + writer.raw("l").stop() + PickleWriter().raw("(").text("7").raw("l").stop() +
                            storage(4, 16, 'a'));
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_EQ(archive->graph.text(archive->graph.items(archive->graph.root())[0]).size(), 300'000u);
}

TEST_F(TorchLegacyTest, EveryTruncationIsCorrupt) {
  const std::string whole = preamble() + object() + keys() + storages();
  for (std::size_t length = 14; length < whole.size(); ++length) {
    const auto archive = open(whole.substr(0, length));
    ASSERT_FALSE(archive) << length;
    EXPECT_EQ(archive.error().code, Errc::corrupt) << length << ": " << archive.error().message;
  }
}

TEST_F(TorchLegacyTest, ContradictionsAreNamed) {
  const std::string head = preamble() + object();
  expect_refused(head + keys() + storage(5, 16, 'a') + storage(3, 3, 'b') + storage(2, 16, 'c'), Errc::corrupt,
                 "storage 7: holds 5 elements, but the pickle says 4");
  expect_refused(head + PickleWriter().raw("(").text("7").text("6").raw("l").stop() + storages(), Errc::corrupt,
                 "storage 6: no tensor names it");
  expect_refused(head + PickleWriter().raw("(").text("7").text("7").raw("l").stop() + storages(), Errc::corrupt,
                 "storage 7: listed twice");
  expect_refused(head + PickleWriter().integer(3).stop() + storages(), Errc::corrupt, "storage keys: not a list");
  PickleWriter twice;
  twice.raw("(");
  tensor(twice, "7", "FloatStorage", 4);
  tensor(twice, "7", "FloatStorage", 5);
  expect_refused(preamble() + twice.raw("l").stop() + keys() + storages(), Errc::corrupt, "described with two lengths");
}

TEST_F(TorchLegacyTest, WhatIsNotReadIsNamed) {
  expect_refused(preamble(1000) + object() + keys() + storages(), Errc::unsupported, "another protocol than 1001");
  expect_refused(preamble() + object("(" + PickleWriter(0).text("70").stop().substr(0, 7) + "J\0\0\0\0J\4\0\0\0t"s) +
                     keys() + storages(),
                 Errc::unsupported, "a view of another one");
  expect_refused(preamble() + PickleWriter().global("os", "system").raw("(").text("true").raw("tR").stop() + keys(),
                 Errc::refused, "os");
}

TEST_F(TorchLegacyTest, AStorageThatNobodyListsIsMissing) {
  const auto archive = open(preamble() + object() + PickleWriter().raw("(").text("7").raw("l").stop() + storages());
  ASSERT_TRUE(archive) << archive.error().message;
  const auto view = torch::as_tensor(archive->graph, archive->graph.items(archive->graph.root())[1]);
  ASSERT_TRUE(view && *view);
  EXPECT_EQ(archive->locate(**view, 0).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ckpt
