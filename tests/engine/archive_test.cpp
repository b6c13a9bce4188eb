#include "engine/io/archive.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/tar_writer.hpp"

namespace ckpt {
namespace {

using test::TarWriter;

const std::string kTar = "/d/run.tar";
const std::string kLongName = "deep/" + std::string(150, 'n') + "/file";

std::string sample() {
  return TarWriter()
      .add("./", "", '5')
      .add("./weights/", "", '5')
      .add("./weights/a.bin", "first")
      .add("./weights/again", "", '1', "./weights/a.bin")
      .add("./weights.txt", std::string(600, 't'))
      .add("./link", "", '2', "weights.txt")
      .add_long(kLongName, "far", false)
      .add_long(kLongName + "2", "away", true)
      .add("./empty", "")
      .finish();
}

struct Opened {
  explicit Opened(const std::string& bytes) : io(disk.io()) {
    disk.put(kTar, bytes);
    auto found = find_archive(*io, kTar);
    EXPECT_TRUE(found) << found.error().message;
    if (found && *found) view = make_archive_io(*io, *found);
  }
  MemoryDisk disk{};
  std::unique_ptr<Io> io;
  std::unique_ptr<Io> view{};
};

std::vector<std::string> names_in(Io& io, const std::string& path) {
  std::vector<std::string> out;
  const auto entries = io.list(path);
  EXPECT_TRUE(entries) << entries.error().message;
  if (entries) {
    for (const DirEntry& entry : *entries)
      out.push_back(entry.name + (entry.kind == FileInfo::Kind::directory ? "/" : ""));
  }
  return out;
}

Errc code_of(const std::string& bytes) {
  MemoryDisk disk;
  disk.put(kTar, bytes);
  const auto io = disk.io();
  const auto found = find_archive(*io, kTar);
  return found ? Errc{} : found.error().code;
}

TEST(Archive, ItsMembersAreFilesAndFolders) {
  const Opened opened(sample());
  ASSERT_TRUE(opened.view);
  Io& view = *opened.view;
  EXPECT_EQ(names_in(view, kTar), (std::vector<std::string>{"deep/", "empty", "link", "weights/", "weights.txt"}));
  EXPECT_EQ(names_in(view, kTar + "/weights"), (std::vector<std::string>{"a.bin", "again"}));
  EXPECT_EQ(names_in(view, "/d"), (std::vector<std::string>{"run.tar"}));
  EXPECT_EQ(view.stat(kTar)->kind, FileInfo::Kind::directory);
  EXPECT_EQ(view.stat(kTar + "/weights.txt")->bytes, 600u);
  EXPECT_EQ(*read_small_file(view, kTar + "/link", 1000), std::string(600, 't'));
  EXPECT_EQ(*read_small_file(view, kTar + "/weights/a.bin", 100), "first");
  EXPECT_EQ(*read_small_file(view, kTar + "/weights/again", 100), "first");
  EXPECT_EQ(*read_small_file(view, kTar + "/" + kLongName, 100), "far");
  EXPECT_EQ(*read_small_file(view, kTar + "/" + kLongName + "2", 100), "away");
  EXPECT_EQ(*read_small_file(view, kTar + "/empty", 100), "");
  EXPECT_EQ(view.stat(kTar + "/none").error().code, Errc::not_found);
  EXPECT_FALSE(view.open(kTar + "/weights", {}));
  EXPECT_FALSE(view.list(kTar + "/weights.txt"));
}

TEST(Archive, LinksAreFollowedInTheArchiveOnly) {
  const Opened opened(TarWriter()
                          .add("s/1/config.json", "", '2', "../../blobs/h1")
                          .add("s/1/chain", "", '2', "config.json")
                          .add("s/1/out", "", '2', "../../../etc/passwd")
                          .add("s/1/root", "", '2', "/etc/passwd")
                          .add("s/1/none", "", '2', "nothing")
                          .add("s/1/loop", "", '2', "loop")
                          .add("s/1/folder", "", '2', "../../blobs")
                          .add("s/1/through", "", '2', "folder/h1")
                          .add("s/1/again", "", '1', "s/1/chain")
                          .add("s/1/self", "", '2', ".")
                          .add("blobs/h1", "text")
                          .finish());
  Io& view = *opened.view;
  EXPECT_EQ(*read_small_file(view, kTar + "/s/1/config.json", 100), "text");
  for (const char* name : {"chain", "folder/h1", "through", "again"})
    EXPECT_EQ(*read_small_file(view, kTar + "/s/1/" + name, 100), "text") << name;
  for (const char* name : {"out", "root", "none", "loop", "self"}) {
    EXPECT_EQ(view.stat(kTar + "/s/1/" + name).error().code, Errc::not_found) << name;
    EXPECT_FALSE(view.open(kTar + "/s/1/" + name, {})) << name;
  }
  const auto entries = view.list(kTar + "/s/1");
  ASSERT_TRUE(entries);
  for (const DirEntry& entry : *entries)
    EXPECT_EQ(entry.is_link, !view.stat(kTar + "/s/1/" + entry.name)) << entry.name;
  EXPECT_EQ(view.stat(kTar + "/s/1/folder")->kind, FileInfo::Kind::directory);
}

TEST(Archive, IncrementalOnesHaveFoldersWithLists) {
  const Opened opened(TarWriter().add("w/", std::string("Ya\0\0", 4), 'D').add("w/a", "text").finish());
  EXPECT_EQ(*read_small_file(*opened.view, kTar + "/w/a", 100), "text");
}

TEST(Archive, ReadsEndWithTheMember) {
  const Opened opened(sample());
  Io& view = *opened.view;
  const auto file = view.open(kTar + "/weights/a.bin", {});
  ASSERT_TRUE(file);
  EXPECT_EQ(view.info(*file)->bytes, 5u);
  std::array<std::byte, 600> room{};
  EXPECT_EQ(view.read_at(*file, 1, std::span(room).first(5)).error().code, Errc::corrupt);
  EXPECT_TRUE(view.read_at(*file, 1, std::span(room).first(4)));
  for (const auto& [offset, expected] : {std::pair<std::uint64_t, std::size_t>{0, 5}, {3, 2}, {5, 0}, {4000, 0}}) {
    ASSERT_TRUE(view.submit({.file = *file, .offset = offset, .data = room.data(), .bytes = room.size(), .tag = 1}));
    std::array<Completion, 1> done{};
    ASSERT_EQ(*view.reap(done, true), 1u);
    ASSERT_TRUE(done[0].bytes) << done[0].bytes.error().message;
    EXPECT_EQ(*done[0].bytes, expected) << offset;
  }
  EXPECT_TRUE(view.close(*file));
}

TEST(Archive, APathMayLeadIntoIt) {
  const Opened opened(sample());
  const auto found = find_archive(*opened.io, kTar + "/weights/none/");
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->path, kTar);
  EXPECT_EQ((*found)->below(kTar + "/weights/a.bin"), "weights/a.bin");
  EXPECT_EQ((*found)->below(kTar), "");
  EXPECT_FALSE((*found)->below(kTar + "2/weights"));
  EXPECT_FALSE((*found)->below(kTar + "/../secret"));
  for (const char* path : {"/d", "/none", "/none/below", "/"}) {
    const auto none = find_archive(*opened.io, path);
    ASSERT_TRUE(none) << path;
    EXPECT_EQ(*none, nullptr) << path;
  }
}

TEST(Archive, OneThatIsCutShortIsIncomplete) {
  const std::string whole = sample();
  for (std::size_t bytes = 512; bytes < whole.size() - 1023; bytes += 256)
    EXPECT_EQ(code_of(whole.substr(0, bytes)), Errc::incomplete) << bytes;
}

TEST(Archive, DamagedOnesAreRefused) {
  EXPECT_EQ(code_of(TarWriter().add("a/../../b", "x").finish()), Errc::refused);
  EXPECT_EQ(code_of(TarWriter().add("a", "x").add("./a", "y").finish()), Errc::unsupported);
  EXPECT_EQ(code_of(TarWriter().add("a", "x").add("a/b", "y").finish()), Errc::corrupt);
  EXPECT_EQ(code_of(TarWriter().add("a/b", "y").add("a", "x").finish()), Errc::unsupported);
  EXPECT_EQ(code_of(TarWriter().add("a", "", '1', "b").add("b", "x").finish()), Errc::corrupt);
  EXPECT_EQ(code_of(TarWriter().add("a", "x").add("b", "not records", 'x').finish()), Errc::corrupt);
  EXPECT_EQ(code_of(TarWriter().add("a", "x").add("b", "x", 'S').finish()), Errc::unsupported);
  EXPECT_EQ(code_of(TarWriter().add_long(std::string(5000, 'a'), "x", true).finish()), Errc::unsupported);
  const std::string sized = TarWriter::record("size", "9000000000000000000");
  EXPECT_EQ(code_of(TarWriter().add("p", sized, 'x').add("a", "x").finish()), Errc::incomplete);
  std::string damaged = TarWriter().add("a", "x").add("b", "y").finish();
  damaged[1024 + 3] = 'z';  // the second header
  EXPECT_EQ(code_of(damaged), Errc::corrupt);
  EXPECT_EQ(code_of(TarWriter().add("a/", "", '5').add("a", "", '5').finish()), Errc{});
}

TEST(Archive, AFailedOperationIsReported) {
  MemoryDisk disk;
  disk.put(kTar, sample());
  const auto whole = std::make_shared<FaultPlan>();
  ASSERT_TRUE(find_archive(*make_fault_io(disk.io(), whole), kTar));
  ASSERT_GT(whole->operation_count(), 5u);
  // Without the first, stat: what that fails at is not there.
  for (std::uint64_t n = 1; n < whole->operation_count(); ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::io);
    const auto found = find_archive(*make_fault_io(disk.io(), plan), kTar);
    ASSERT_FALSE(found) << n;
    EXPECT_EQ(found.error().code, Errc::io);
  }
}

}  // namespace
}  // namespace ckpt
