// Which retired files a save takes, and which it must not touch: on the real file system, by both engines.
#include "engine/store/recycle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/recyclable.hpp"
#include "engine/publish/publish.hpp"
#include "format/checked.hpp"
#include "support/file_bytes.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TargetFile target_file(std::string path, std::uint64_t bytes) {
  TargetFile file;
  file.path = std::move(path);
  file.bytes = bytes;
  return file;
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

/// Gives a path an access list, of acl(5), by which user 4711 may read; the mode of a file of 0644 stays what it is.
bool set_access_list(const std::string& path, const char* kind) {
  struct Entry {
    std::uint16_t tag;
    std::uint16_t permissions;
    std::uint32_t id;
  };
  struct List {
    std::uint32_t version;
    std::array<Entry, 5> entries;
  };
  constexpr std::uint32_t kNobody = UINT32_MAX;
  const List list{.version = 2,
                  .entries = {{{.tag = 0x01, .permissions = 6, .id = kNobody},  // owner
                               {.tag = 0x02, .permissions = 4, .id = 4711},
                               {.tag = 0x04, .permissions = 4, .id = kNobody},     // group
                               {.tag = 0x10, .permissions = 4, .id = kNobody},     // mask
                               {.tag = 0x20, .permissions = 4, .id = kNobody}}}};  // others
  return ::setxattr(path.c_str(), kind, &list, sizeof list, 0) == 0;
}

/// A store with a run, a partial in it and retired files beside.
class Recycle : public testing::TestWithParam<IoKind> {
 protected:
  void SetUp() override {
    auto io = open_io(GetParam());
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io) << io.error().message;
    io_ = *std::move(io);
    if (!io_->recycles(directory_.path())) GTEST_SKIP() << "neither ext4 nor XFS here";
    std::filesystem::create_directories(recycle_path(store()));
    std::filesystem::create_directories(partial());
  }
  const std::string& store() const { return directory_.path(); }
  std::string partial() const { return store() + "/r/step-000000001.partial-0123456789abcdef"; }
  std::string made() const { return partial() + "/f"; }

  /// A retired file of so many bytes 'x'; its path.
  std::string retire(std::uint64_t bytes, std::uint64_t number = 1) {
    const RecycledFile file{.set = {.retired_ms = 1000, .order = 7}, .inode = number, .bytes = bytes};
    const std::string path = recycle_path(store()) + "/" + file.name();
    test::write_file(path, std::string(static_cast<std::size_t>(bytes), 'x'));
    return path;
  }
  void make(std::uint64_t bytes) {
    const auto done = make_files(*io_, partial(), {target_file("f", bytes)});
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(static_cast<std::uint64_t>(status_of(made()).st_size), round_up(bytes, kAlignment));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(partial()), {}), 1) << "something else is left";
  }
  /// Whether the file that was made holds bytes of before. (A new one may get the inode of one that was unlinked.)
  bool is_overwritten() const { return test::read_file(made()).front() == 'x'; }
  /// A retired file of 1 MiB is not taken for a new one, and is gone: nobody tries it again.
  void expect_refused(const std::string& retired) {
    make(kMiB);
    EXPECT_FALSE(is_overwritten());
    EXPECT_FALSE(std::filesystem::exists(retired));
  }

  TempDir directory_;
  std::unique_ptr<Io> io_;
};

TEST_P(Recycle, AFileOfTheSameSizeIsOverwritten) {
  const auto before = status_of(retire(kMiB));
  make(kMiB);
  const auto after = status_of(made());
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_TRUE(is_overwritten());
}

TEST_P(Recycle, ALargerFileIsCutAndASmallerOneExtendedWithItsSpace) {
  auto before = status_of(retire(kMiB + 8192));
  make(kMiB);
  EXPECT_EQ(status_of(made()).st_ino, before.st_ino);
  EXPECT_TRUE(is_overwritten());
  ASSERT_EQ(::unlink(made().c_str()), 0);
  before = status_of(retire(kMiB));
  make(3 * kMiB);
  const auto after = status_of(made());
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_GE(static_cast<std::uint64_t>(after.st_blocks) * 512, 3 * kMiB) << "a part has no space";
}

TEST_P(Recycle, TheBestFitIsTaken) {
  const auto small = status_of(retire(kMiB / 2, 1));
  const auto large = status_of(retire(2 * kMiB, 2));
  const auto best = status_of(retire(kMiB + 4096, 3));
  const std::string huge = retire(8 * kMiB, 4);
  for (const auto& wanted : {best, large, small}) {
    make(kMiB);
    EXPECT_EQ(status_of(made()).st_ino, wanted.st_ino);
    EXPECT_TRUE(is_overwritten());
    ASSERT_EQ(::unlink(made().c_str()), 0);
  }
  make(kMiB);  // most of what is left would be thrown away
  EXPECT_TRUE(std::filesystem::exists(huge));
}

TEST_P(Recycle, AFileWhoseSpaceFitsIsTakenBeforeALargerOne) {
  const auto fitting = status_of(retire(kMiB - 100, 1));
  retire(kMiB + 100, 2);
  make(kMiB - 100);  // asked for as 1 MiB of space, and not yet cut to its size
  EXPECT_EQ(status_of(made()).st_ino, fitting.st_ino);
}

TEST_P(Recycle, WhatAnotherProcessHasOpenIsNotTaken) {
  const std::string path = retire(kMiB);
  const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  expect_refused(path);
  char byte = 0;
  EXPECT_EQ(::pread(reader, &byte, 1, kMiB - 1), 1);
  EXPECT_EQ(byte, 'x');
  ::close(reader);
}

TEST_P(Recycle, WhatIsMappedIsNotTaken) {
  const std::string path = retire(kMiB);
  const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, reader, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ::close(reader);
  expect_refused(path);
  EXPECT_EQ(static_cast<const char*>(mapped)[kMiB - 1], 'x');
  ::munmap(mapped, kMiB);
}

TEST_P(Recycle, WhatHasAnotherNameIsNotTaken) {
  const std::string path = retire(kMiB);
  const std::string other = store() + "/other";
  ASSERT_EQ(::link(path.c_str(), other.c_str()), 0);
  expect_refused(path);
  EXPECT_EQ(test::read_file(other), std::string(kMiB, 'x'));
}

TEST_P(Recycle, WhatHasAnotherModeIsNotTaken) {
  for (const mode_t mode : {0600U, 0660U, 0755U}) {
    const std::string path = retire(kMiB);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    expect_refused(path);
    ASSERT_EQ(::unlink(made().c_str()), 0);
  }
}

TEST_P(Recycle, TheModeIsThatOfAFileMadeNow) {
  const std::string path = retire(kMiB);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const mode_t before = ::umask(0077);
  make(kMiB);
  ::umask(before);
  EXPECT_TRUE(is_overwritten());
}

TEST_P(Recycle, WhatBelongsToAnotherIsNotTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  for (const bool group : {false, true}) {
    const std::string path = retire(kMiB);
    ASSERT_EQ(::chown(path.c_str(), group ? 0 : 4711, group ? 4711 : 0), 0);
    expect_refused(path);
    ASSERT_EQ(::unlink(made().c_str()), 0);
  }
}

TEST_P(Recycle, InADirectoryThatPassesItsGroupOnThatGroupCounts) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(partial().c_str(), 0, 4711), 0);
  ASSERT_EQ(::chmod(partial().c_str(), 02755), 0);
  std::string path = retire(kMiB);
  expect_refused(path);
  EXPECT_EQ(status_of(made()).st_gid, 4711U);
  ASSERT_EQ(::unlink(made().c_str()), 0);
  path = retire(kMiB);
  ASSERT_EQ(::chown(path.c_str(), 0, 4711), 0);
  make(kMiB);
  EXPECT_TRUE(is_overwritten());
  EXPECT_EQ(status_of(made()).st_gid, 4711U);
}

TEST_P(Recycle, WhatOthersMayReadByAnAccessListIsNotTaken) {
  const std::string path = retire(kMiB);
  if (!set_access_list(path, "system.posix_acl_access")) GTEST_SKIP() << "no access lists here";
  ASSERT_EQ(status_of(path).st_mode & 07777, 0644U);
  expect_refused(path);
}

TEST_P(Recycle, WhereANewFileWouldHaveAnAccessListNoneIsTaken) {
  if (!set_access_list(partial(), "system.posix_acl_default")) GTEST_SKIP() << "no access lists here";
  expect_refused(retire(kMiB));
  EXPECT_GT(::getxattr(made().c_str(), "system.posix_acl_access", nullptr, 0), 0);
}

TEST_P(Recycle, WhatSharesItsBytesIsNotTaken) {
  const std::string path = retire(kMiB);
  const std::string other = store() + "/other";
  const int from = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = ::open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const bool cloned = ::ioctl(to, FICLONE, from) == 0;
  ::close(from);
  ::close(to);
  if (!cloned) GTEST_SKIP() << "files share no bytes here: recycle_on_xfs.py tries it where it may mount";
  expect_refused(path);
  EXPECT_EQ(test::read_file(other), std::string(kMiB, 'x'));
}

TEST_P(Recycle, APipeIsNoFile) {
  const std::string path = recycle_path(store()) + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0644), 0);
  EXPECT_FALSE(io_->open(path, {.mode = OpenOptions::Mode::write_recycled}));
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ASSERT_GE(fd, 0);
  const auto checked = check_recyclable(fd, path, {});
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("not a regular file"), std::string::npos) << checked.error().message;
  ::close(fd);
}

TEST_P(Recycle, ALinkIsNotFollowed) {
  const std::string outside = store() + "/outside";
  test::write_file(outside, std::string(kMiB, 'x'));
  const RecycledFile file{.set = {.retired_ms = 1, .order = 1}, .inode = 9, .bytes = kMiB};
  const std::string link = recycle_path(store()) + "/" + file.name();
  std::filesystem::create_symlink(outside, link);
  make(kMiB);
  EXPECT_TRUE(S_ISREG(status_of(made()).st_mode));
  EXPECT_EQ(test::read_file(outside), std::string(kMiB, 'x'));
  // Planted after the listing it is refused on opening.
  EXPECT_FALSE(io_->open(link, {.mode = OpenOptions::Mode::write_recycled}));
}

TEST_P(Recycle, WhatNobodyRetiredStays) {
  const std::string path = recycle_path(store()) + "/model.safetensors";
  test::write_file(path, std::string(kMiB, 'x'));
  make(kMiB);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_P(Recycle, TheProbeLeavesNoLease) {
  const std::string path = retire(kMiB);
  const auto file = io_->open(path, {.mode = OpenOptions::Mode::write_recycled});
  ASSERT_TRUE(file) << file.error().message;
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // a lease would refuse it
  EXPECT_GE(reader, 0);
  ::close(reader);
  ASSERT_TRUE(io_->close(*file));
}

TEST_P(Recycle, TwoWhoTakeAtOnceGetDifferentFiles) {
  retire(kMiB, 1);
  retire(kMiB, 2);
  RecycledFiles one = RecycledFiles::above(*io_, store() + "/r");
  RecycledFiles two = RecycledFiles::above(*io_, store() + "/r");
  EXPECT_TRUE(one.take(partial() + "/a", kMiB));
  EXPECT_TRUE(two.take(partial() + "/b", kMiB));
  EXPECT_FALSE(one.take(partial() + "/c", kMiB));
  EXPECT_NE(status_of(partial() + "/a").st_ino, status_of(partial() + "/b").st_ino);
}

INSTANTIATE_TEST_SUITE_P(Engines, Recycle, testing::Values(IoKind::threads, IoKind::uring), [](const auto& kind) {
  return std::string(kind.param == IoKind::threads ? "threads" : "uring");
});

TEST(RecycleElsewhere, OnOtherFileSystemsNothingIsTaken) {
  const TempDir directory(memory_temp_dir());
  const auto io = open_io(IoKind::threads);
  ASSERT_TRUE(io);
  if ((*io)->recycles(directory.path())) GTEST_SKIP() << "no file system in memory here";
  const std::string path = directory.path() + "/f";
  test::write_file(path, "bytes");
  const Error told = (*io)->open(path, {.mode = OpenOptions::Mode::write_recycled}).error();
  EXPECT_EQ(told.code, Errc::locked);
  EXPECT_NE(told.message.find("neither ext4 nor XFS"), std::string::npos) << told.message;
}

// --- in memory -------------------------------------------------------------------------------------------------------

std::string retired(std::uint64_t bytes, std::uint64_t number) {
  return "/s/.ckpt/recycle/" +
         RecycledFile{.set = {.retired_ms = 1000, .order = 7}, .inode = number, .bytes = bytes}.name();
}

TEST(RecycleMemory, WhatSharesItsBytesIsNotTaken) {
  MemoryDisk disk;
  disk.put(retired(8192, 1), std::string(8192, 'x'));
  disk.make_unlike_new(retired(8192, 1));
  const std::uint64_t inode = disk.inode(retired(8192, 1));
  disk.put("/s/r/p.partial-1/other", "");
  const auto io = disk.io();
  ASSERT_TRUE(make_files(*io, "/s/r/p.partial-1", {target_file("f", 8192)}));
  EXPECT_NE(disk.inode("/s/r/p.partial-1/f"), inode);
  EXPECT_EQ(disk.text(retired(8192, 1)), "(none)");
}

TEST(RecycleMemory, WhereSpaceIsShortRetiredFilesAreGivenUp) {
  MemoryDisk disk({.capacity_bytes = 64 << 10});
  disk.put(retired(48 << 10, 1), std::string(48 << 10, 'x'));  // too large for one file of 8 KiB, in the way of all
  disk.put("/s/r/p.partial-1/other", "");
  const auto io = disk.io();
  std::vector<TargetFile> files;
  for (int i = 0; i < 6; ++i) files.push_back(target_file(fmt::format("f{}", i), 8 << 10));
  const auto done = make_files(*io, "/s/r/p.partial-1", files);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(disk.text(retired(48 << 10, 1)), "(none)");
}

TEST(RecycleMemory, TheNearestStoreFeedsARun) {
  MemoryDisk disk;
  disk.put("/s/.ckpt/inbox/note", "");
  disk.put("/s/a/b/c/x", "");
  disk.put("/s/a/b/.ckpt/inbox/note", "");
  const auto io = disk.io();
  EXPECT_EQ(recycle_above(*io, "/s/a/b/c").value(), "/s/a/b/.ckpt/recycle");
  EXPECT_EQ(recycle_above(*io, "/s/a").value(), "/s/.ckpt/recycle");
  EXPECT_EQ(recycle_above(*io, "/s").value(), "/s/.ckpt/recycle");
  EXPECT_EQ(recycle_above(*io, "/elsewhere/run").value(), std::nullopt);
}

TEST(RecycleName, ReadsBackAndNothingElseDoes) {
  const RecycledFile file{.set = {.retired_ms = 1'700'000'000'123, .order = 0xab}, .inode = 12, .bytes = 4096};
  EXPECT_EQ(file.name(), "1700000000123-00000000000000ab-12.4096");
  const auto read = RecycledFile::parse(file.name());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->set, file.set);
  EXPECT_EQ(read->bytes, 4096U);
  for (const char* name : {"", "x", "1700000000123-00000000000000ab-12", "1700000000123-00000000000000ab-12.4096x",
                           "1700000000123-ab-12.4096", "-1-00000000000000ab-12.4096", "model.safetensors"}) {
    EXPECT_FALSE(RecycledFile::parse(name)) << name;
  }
}

}  // namespace
}  // namespace ckpt
