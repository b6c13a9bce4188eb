// What only a real file system can show: pipes, links, forbidden rings, names that change under a lock.
#include "engine/io/posix_io.hpp"
#include "engine/io/remove_tree.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "engine/io/hard_links.hpp"
#include "engine/publish/publish.hpp"
#include "support/forbid_call.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

class PosixIoTest : public testing::TestWithParam<IoKind> {
 protected:
  void SetUp() override {
    auto io = open_io(GetParam(), 8);
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io);
    io_ = std::move(*io);
  }
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }
  void put(const std::string& name, const std::string& text) {
    auto file = io_->open(at(name), {.mode = OpenOptions::Mode::write_new});
    ASSERT_TRUE(file);
    ASSERT_TRUE(io_->write_at(*file, 0, std::as_bytes(std::span(text))));
    ASSERT_TRUE(io_->close(*file));
  }
  std::string text(const std::string& name) { return read_small_file(*io_, at(name), 1000).value_or("(none)"); }

  TempDir directory_;
  std::unique_ptr<Io> io_;
};

TEST_P(PosixIoTest, ALinkIsASecondNameOfTheFileAndReplacesNothing) {
  put("file", "text");
  ASSERT_EQ(::symlink(at("file").c_str(), at("symlink").c_str()), 0);
  ASSERT_TRUE(link_file(*io_, at("symlink"), at("second")));
  EXPECT_EQ(io_->stat(at("second"))->inode, io_->stat(at("file"))->inode);
  EXPECT_EQ(text("second"), "text");
  EXPECT_EQ(link_file(*io_, at("file"), at("second")).error().code, Errc::target_exists);
  EXPECT_EQ(link_file(*io_, at("none"), at("third")).error().code, Errc::not_found);
  EXPECT_EQ(link_file(*io_, directory_.path(), at("third")).error().code, Errc::unsupported);
  const auto elsewhere = link_file(*io_, "/proc/self/status", at("third"));
  EXPECT_EQ(elsewhere.error().code, Errc::unsupported) << elsewhere.error().message;
}

TEST_P(PosixIoTest, APipeIsRefusedWithoutWaitingForItsWriter) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const auto opened = io_->open(at("pipe"), {.mode = OpenOptions::Mode::read});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message, at("pipe") + ": not a regular file");
  EXPECT_TRUE(io_->lock(at("pipe"), LockMode::shared));  // what matters is that it returns
  EXPECT_EQ(io_->stat(at("pipe"))->kind, FileInfo::Kind::other);
}

TEST_P(PosixIoTest, LinksAreFollowedByReadersAndNotByRemoval) {
  put("kept", "precious");
  ASSERT_TRUE(io_->make_dir(at("outside")));
  put("outside/file", "precious");
  ASSERT_TRUE(io_->make_dir(at("tree")));
  ASSERT_TRUE(io_->make_dir(at("tree/below")));
  std::filesystem::create_symlink(at("kept"), at("tree/below/to_file"));
  std::filesystem::create_symlink(at("outside"), at("tree/below/to_directory"));
  std::filesystem::create_symlink(at("nowhere"), at("tree/below/to_nothing"));
  const auto entries = io_->list(at("tree/below"));
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 3U);
  EXPECT_EQ((*entries)[0].kind, FileInfo::Kind::directory);
  EXPECT_EQ((*entries)[1].kind, FileInfo::Kind::file);
  EXPECT_EQ((*entries)[2].kind, FileInfo::Kind::other);
  EXPECT_EQ(text("tree/below/to_file"), "precious");

  ASSERT_TRUE(remove_tree(*io_, at("tree")));
  EXPECT_FALSE(io_->stat(at("tree")));
  EXPECT_EQ(text("kept"), "precious");
  EXPECT_EQ(text("outside/file"), "precious");

  std::filesystem::create_symlink(at("outside"), at("root"));
  ASSERT_TRUE(remove_tree(*io_, at("root")));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(at("root"))));
  EXPECT_EQ(text("outside/file"), "precious");
}

TEST_P(PosixIoTest, RenamingWithoutFlagsReplacesNothingEither) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    return rename_without_flags({.name = at(from)}, {.name = at(to)}, at(from), at(to));
  };
  put("a", "A");
  put("b", "B");
  ASSERT_TRUE(io_->make_dir(at("x")));
  ASSERT_TRUE(io_->make_dir(at("empty")));
  EXPECT_EQ(rename("a", "b").error().code, Errc::target_exists);
  EXPECT_EQ(rename("x", "empty").error().code, Errc::target_exists);
  EXPECT_EQ(rename("x", "a").error().code, Errc::target_exists);
  EXPECT_EQ(rename("none", "c").error().code, Errc::not_found);
  EXPECT_EQ(text("b"), "B");
  EXPECT_TRUE(rename("a", "c"));
  EXPECT_TRUE(rename("x", "y"));
  EXPECT_EQ(text("c"), "A");
  EXPECT_FALSE(io_->stat(at("a")));
  EXPECT_FALSE(io_->stat(at("x")));
  EXPECT_TRUE(io_->stat(at("y")));
}

TEST_P(PosixIoTest, RenamingWithoutFlagsNamesWholePaths) {
  put("a", "A");
  put("b", "B");
  const ChangePlace source{.name = at("a")};
  const auto taken = rename_without_flags(source, {.name = at("b")}, "run/a", "run/b");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().file, "run/b");
  EXPECT_TRUE(taken.error().message.starts_with("run/b: ")) << taken.error().message;
  const auto none = rename_without_flags({.name = at("none")}, {.name = at("c")}, "run/none", "run/c");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().file, "run/none");
}

TEST_P(PosixIoTest, AnIoHandedToAnotherThreadWorksThere) {
  put("file", std::string(kAlignment, 'z'));
  const auto read = [this] {
    auto file = io_->open(at("file"), {.mode = OpenOptions::Mode::read});
    alignas(kAlignment) std::byte data[kAlignment] = {};
    if (!file || !io_->submit({.file = *file, .data = data, .bytes = sizeof data})) return false;
    Completion out[1];
    return io_->reap(out, true).value_or(0) == 1 && out[0].bytes.value_or(0) == kAlignment && data[9] == std::byte{'z'};
  };
  EXPECT_TRUE(read());
  bool there = false;
  std::thread([&] { there = read(); }).join();
  EXPECT_TRUE(there);
  EXPECT_TRUE(read());
}

TEST_P(PosixIoTest, PublishesOnARealFileSystem) {
  const auto publish = [&](bool directory, bool overwrite, const std::string& content) -> Result<> {
    TargetFile file;
    file.path = directory ? "shards/0" : "";
    file.bytes = content.size();
    CKPT_TRY(const auto publication,
             Publication::begin(*io_,
                                {.target = at(directory ? "dir" : "single"),
                                 .id = "abc",
                                 .directory = directory,
                                 .overwrite = overwrite,
                                 .own_files = [](const std::string&) -> Result<std::vector<std::string>> {
                                   return std::vector<std::string>{"shards/0", "manifest.json"};
                                 }},
                                {file}));
    CKPT_TRY(const FileHandle handle,
             io_->open(join_path(publication->root(), file.path), {.mode = OpenOptions::Mode::write_existing}));
    CKPT_CHECK(io_->write_at(handle, 0, std::as_bytes(std::span(content))));
    CKPT_CHECK(io_->truncate(handle, content.size()));
    CKPT_CHECK(io_->sync(handle));
    CKPT_CHECK(io_->close(handle));
    return publication->commit(directory ? std::vector<SmallFile>{{"manifest.json", content}}
                                         : std::vector<SmallFile>{});
  };
  for (const bool directory : {true, false}) {
    const std::string data = directory ? "dir/shards/0" : "single";
    auto done = publish(directory, false, "first");
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(text(data), "first");
    done = publish(directory, false, "second");
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::target_exists);
    EXPECT_EQ(text(data), "first");
    done = publish(directory, true, "third");
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(text(data), "third");
  }
  EXPECT_EQ(text("dir/manifest.json"), "third");
  const auto left = io_->list(directory_.path());
  ASSERT_TRUE(left);
  EXPECT_EQ(left->size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Io, PosixIoTest, testing::Values(IoKind::threads, IoKind::uring), [](const auto& kind) {
  return std::string(kind.param == IoKind::uring ? "uring" : "threads");
});

// --- where the system refuses a call, as in containers -------------------------------------------------------------

/// 0 when automatic falls back and uring says why not, with that code.
int judge_without_rings(unsigned reason, const std::string& words, Errc code = Errc::unsupported) {
  if (!test::forbid_call(SYS_io_uring_setup, reason)) return 1;
  const auto automatic = open_io(IoKind::automatic);
  if (!automatic || (*automatic)->name() != "threads") return 2;
  const auto uring = open_io(IoKind::uring);
  if (uring || uring.error().code != code) return 3;
  return uring.error().message.find(words) == std::string::npos ? 4 : 0;
}

TEST(Refused, RingsGiveWayToThreadsAndSayWhyWhenInsistedOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(judge_without_rings(EPERM, "Operation not permitted")), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::_Exit(judge_without_rings(ENOSYS, "not implemented")), testing::ExitedWithCode(0), "");
  // The system has them: it is the process that has no descriptor left.
  EXPECT_EXIT(std::_Exit(judge_without_rings(EMFILE, "Too many open files", Errc::io)), testing::ExitedWithCode(0), "");
}

/// 0 when a rename whose flags are refused still replaces nothing, and an exchange is not attempted.
int judge_without_rename_flags() {
  const TempDir own;  // removed before the process ends
  const std::string& directory = own.path();
  if (!test::forbid_call(SYS_renameat2, EINVAL)) return 1;
  const auto io = open_io(IoKind::threads);
  if (!io) return 2;
  for (const char* name : {"/a", "/b"}) {
    const auto file = (*io)->open(directory + name, {.mode = OpenOptions::Mode::write_new});
    if (!file || !(*io)->close(*file)) return 3;
  }
  const auto taken = (*io)->rename(directory + "/a", directory + "/b", RenameMode::no_replace);
  if (taken || taken.error().code != Errc::target_exists) return 4;
  if (!(*io)->rename(directory + "/a", directory + "/c", RenameMode::no_replace)) return 5;
  const auto exchanged = (*io)->rename(directory + "/b", directory + "/c", RenameMode::exchange);
  return !exchanged && exchanged.error().code == Errc::unsupported ? 0 : 6;
}

TEST(Refused, RenameFlagsGiveWayToLinkAndUnlink) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(judge_without_rename_flags()), testing::ExitedWithCode(0), "");
}

TEST(OpenIo, RefusesQueuesWithoutRoomAndWithoutBound) {
  EXPECT_FALSE(open_io(IoKind::threads, 0));
  EXPECT_FALSE(open_io(IoKind::threads, 1U << 20));
}

TEST(Paths, AreJoinedAndTakenApart) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a//", "b"), "a/b");
  EXPECT_EQ(join_path("a/", ""), "a");
  EXPECT_EQ(join_path("/", "b"), "/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(base_name("a/b/"), "b");
  EXPECT_EQ(base_name("b"), "b");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(parent_path("a//b"), "a");
}

}  // namespace
}  // namespace ckpt
