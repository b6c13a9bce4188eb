// What an Io finds below a directory that is held, whatever others do to the names meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/io/beneath.hpp"
#include "engine/io/forwarding_io.hpp"
#include "engine/io/held_directories.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/source_files.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/run_directory.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

/// Calls back after a directory was listed: what an attacker does between that and the removal of what it holds.
class SwappingIo final : public ForwardingIo {
 public:
  SwappingIo(Io& inner, std::string directory, std::function<void()> then)
      : ForwardingIo(inner), directory_(std::move(directory)), then_(std::move(then)) {}
  Result<std::unique_ptr<Io>> new_instance() const override { return inner().new_instance(); }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    auto entries = ForwardingIo::list(path);
    if (path == directory_ && then_) std::exchange(then_, {})();
    return entries;
  }

 private:
  std::string directory_;
  std::function<void()> then_;
};

class HeldDirectoryTest : public testing::TestWithParam<IoKind> {
 protected:
  void SetUp() override {
    auto io = open_io(GetParam(), 8);
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io);
    io_ = std::move(*io);
    for (const char* name : {"store", "store/run", "store/run/one", "victim"}) ASSERT_TRUE(io_->make_dir(at(name)));
    put("victim/precious", "precious");
    put("store/run/one/file", "mine");
  }
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }
  void put(const std::string& name, const std::string& text) {
    auto file = io_->open(at(name), {.mode = OpenOptions::Mode::write_new});
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(io_->write_at(*file, 0, std::as_bytes(std::span(text))));
    ASSERT_TRUE(io_->close(*file));
  }
  std::string text(const std::string& name) { return read_small_file(*io_, at(name), 1000).value_or("(none)"); }
  std::unique_ptr<HeldDirectory> hold(const std::string& name, const HoldOptions& options = {}) {
    auto held = hold_directory(*io_, at(name), options);
    EXPECT_TRUE(held) << held.error().message;
    return held ? *std::move(held) : nullptr;
  }
  std::uint32_t permissions(const std::string& name) { return io_->stat(at(name)).value().permissions; }

  TempDir directory_;
  std::unique_ptr<Io> io_;
};

TEST_P(HeldDirectoryTest, NoChangeBelowOneGoesThroughALink) {
  fs::create_directory_symlink(at("victim"), at("store/run/link"));
  fs::create_symlink(at("victim/precious"), at("store/run/file_link"));
  const auto held = hold("store");
  const std::string through = at("store/run/link/");
  const auto is_refused = [&](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::linked) << result.error().message;
    EXPECT_EQ(fs::path(result.error().file), fs::path(at("store/run/link")).lexically_normal());
    EXPECT_NE(result.error().message.find("a symbolic link"), std::string::npos) << result.error().message;
  };
  is_refused(io_->make_dir(through + "new"));
  is_refused(io_->unlink(through + "precious"));
  is_refused(io_->remove_dir(through + "below"));
  is_refused(io_->sync_dir(at("store/run/link")));
  is_refused(io_->rename(through + "precious", at("store/run/taken"), RenameMode::no_replace));
  is_refused(io_->rename(at("store/run/one"), through + "one", RenameMode::no_replace));
  is_refused(io_->open(through + "new", {.mode = OpenOptions::Mode::write_new}));
  is_refused(io_->open(through + "precious", {.mode = OpenOptions::Mode::write_existing}));
  is_refused(replace_file(*io_, through + "precious", "overwritten"));
  is_refused(create_file(*io_, through + "another", "created"));
  is_refused(hold_directory(*io_, at("store/run/link"), {}));
  EXPECT_EQ(io_->open(at("store/run/file_link"), {.mode = OpenOptions::Mode::write_existing}).error().code,
            Errc::linked);
  EXPECT_EQ(text("victim/precious"), "precious");
  EXPECT_EQ(text("store/run/link/precious"), "precious");  // who reads may go that way
  ASSERT_TRUE(io_->unlink(at("store/run/link")));          // the link itself is a name like any other
}

TEST_P(HeldDirectoryTest, WhereReadsAreHeldTheyPassNoLinkEither) {
  fs::create_directory_symlink(at("victim"), at("store/run/link"));
  fs::create_symlink(at("victim/precious"), at("store/run/file_link"));
  const auto held = hold("store/run", {.reads = true});
  EXPECT_EQ(io_->list(at("store/run/link")).error().code, Errc::linked);
  EXPECT_EQ(io_->stat(at("store/run/link/precious")).error().code, Errc::linked);
  EXPECT_EQ(io_->open(at("store/run/link/precious"), {}).error().code, Errc::linked);
  EXPECT_EQ(io_->open(at("store/run/file_link"), {}).error().code, Errc::linked);
  EXPECT_EQ(io_->stat(at("store/run/file_link"))->kind, FileInfo::Kind::other);
  EXPECT_EQ(io_->stat(at("store/run/none")).error().code, Errc::not_found);
  EXPECT_EQ(io_->stat(at("store/run/one/file/below")).error().code, Errc::not_found);
  EXPECT_EQ(io_->list(at("store/run"))->size(), 3U);
  EXPECT_EQ(text("store/run/one/file"), "mine");
}

TEST_P(HeldDirectoryTest, OneThatWasReplacedIsNotChanged) {
  const auto held = hold("store");
  fs::rename(at("store"), at("elsewhere"));
  fs::create_directory_symlink(at("victim"), at("store"));
  const auto gone = io_->unlink(at("store/precious"));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Errc::changed) << gone.error().message;
  fs::remove(at("store"));
  EXPECT_EQ(io_->make_dir(at("store/new")).error().code, Errc::changed);
  fs::rename(at("elsewhere"), at("store"));
  EXPECT_TRUE(io_->make_dir(at("store/new")));
}

TEST_P(HeldDirectoryTest, AnIoMadeFromAnotherHoldsTheSame) {
  const auto before = io_->new_instance();
  ASSERT_TRUE(before);
  fs::create_directory_symlink(at("victim"), at("store/run/link"));
  auto held = hold("store");
  const auto after = io_->new_instance();
  ASSERT_TRUE(after);
  for (Io* io : {before->get(), after->get()})
    EXPECT_EQ(io->unlink(at("store/run/link/precious")).error().code, Errc::linked);
  held.reset();
  EXPECT_TRUE((*before)->unlink(at("store/run/link/precious")));
}

TEST_P(HeldDirectoryTest, ATreeIsRemovedFromWhereItIsThoughItsFoldersAreSwapped) {
  ASSERT_TRUE(io_->make_dir(at("store/run/one/folder")));
  put("store/run/one/folder/precious", "mine");
  SwappingIo io(*io_, at("store/run/one/folder"), [&] {
    fs::rename(at("store/run/one/folder"), at("store/away"));
    fs::create_directory_symlink(at("victim"), at("store/run/one/folder"));
  });
  EXPECT_FALSE(remove_tree(io, at("store/run/one")));
  EXPECT_EQ(text("victim/precious"), "precious");
  EXPECT_TRUE(remove_tree(io, at("store/run/one")));
  EXPECT_EQ(text("victim/precious"), "precious");
}

TEST_P(HeldDirectoryTest, ATreeThatIsSwappedItselfTakesNothingElseWithIt) {
  put("store/run/one/precious", "mine");
  SwappingIo io(*io_, at("store/run/one"), [&] {
    fs::rename(at("store/run/one"), at("store/away"));
    fs::create_directory_symlink(at("victim"), at("store/run/one"));
  });
  EXPECT_FALSE(remove_tree(io, at("store/run/one")));
  EXPECT_EQ(text("victim/precious"), "precious");
}

TEST_P(HeldDirectoryTest, WhatIsMadeIsNoMoreReadableThanItsSource) {
  const mode_t before = ::umask(022);
  {
    const auto held = hold("store", {.readers = readers_of(0600)});
    put("store/secret", "s");
    ASSERT_TRUE(io_->make_dir(at("store/secrets")));
    const auto inner = hold("store/run", {.readers = readers_of(0644)});  // the stricter one counts
    put("store/run/secret", "s");
  }
  put("store/plain", "p");
  ::umask(before);
  EXPECT_EQ(permissions("store/secret"), 0600U);
  EXPECT_EQ(permissions("store/secrets"), 0700U);
  EXPECT_EQ(permissions("store/run/secret"), 0600U);
  EXPECT_EQ(permissions("store/plain"), 0644U);
  EXPECT_EQ(readers_of(0640), 0770U);
  EXPECT_EQ(readers_of(0444), 0777U);
}

TEST_P(HeldDirectoryTest, AStoreMayBeReachedThroughALinkAndItsOwnDirectoryMayBeNone) {
  fs::create_directory_symlink(at("store"), at("link"));
  EXPECT_TRUE(hold_store(*io_, at("link")));
  EXPECT_EQ(hold_directory(*io_, at("link"), {}).error().code, Errc::linked);
  fs::create_directory_symlink(at("victim"), at("store/.ckpt"));
  EXPECT_EQ(hold_store(*io_, at("store")).error().code, Errc::linked);
  fs::remove(at("store/.ckpt"));
  ASSERT_TRUE(io_->make_dir(at("store/.ckpt")));
  fs::create_directory_symlink(at("victim"), at("store/other"));
  EXPECT_TRUE(hold_run(*io_, at("store/run")));
  EXPECT_EQ(hold_run(*io_, at("store/other")).error().code, Errc::linked);
}

TEST_P(HeldDirectoryTest, AStoreIsFoundAboveTheDirectoryOfTheProcessToo) {
  ASSERT_TRUE(io_->make_dir(at("store/.ckpt")));
  ASSERT_TRUE(io_->make_dir(at("elsewhere")));
  const std::string store = fs::canonical(at("store")).string();
  const fs::path before = fs::current_path();
  const auto above = [&](const std::string& run) { return store_above(*io_, run).value_or("(error)"); };
  fs::current_path(at("store/run"));
  EXPECT_EQ(above("."), store);
  EXPECT_EQ(above("one"), store);
  EXPECT_EQ(above("../run"), "..");
  {
    const auto held = hold_run(*io_, "one");
    ASSERT_TRUE(held) << held.error().message;
    EXPECT_NE(held->store, nullptr);
    EXPECT_TRUE(io_->make_dir("one/new"));
    fs::create_directory_symlink(at("victim"), "link");
    EXPECT_EQ(io_->unlink("link/precious").error().code, Errc::linked) << "below the store, by a relative path";
    EXPECT_EQ(hold_run(*io_, "link").error().code, Errc::linked);
  }
  EXPECT_EQ(text("victim/precious"), "precious");
  // What the process works in is no store of what lies beside it.
  fs::current_path(at("store"));
  EXPECT_EQ(above("../elsewhere"), "");
  EXPECT_EQ(hold_run(*io_, "../elsewhere").value().store, nullptr);
  EXPECT_EQ(hold_run(*io_, "..").value().store, nullptr);
  EXPECT_EQ(above("."), ".");
  fs::current_path(before);
}

TEST(SourceFilesTest, WhoMayReadAllFilesMayReadTheResult) {
  SourceFiles files;
  Map map;
  map.files = {{.path = "a"}, {.path = "/temporary"}};
  ASSERT_TRUE(files.see("root/a", {.permissions = 0644}));
  EXPECT_EQ(files.readers(map, "root"), 0777U);
  map.files.push_back({.path = "b"});
  EXPECT_EQ(files.readers(map, "root"), 0700U) << "nobody knows who may read it";
  ASSERT_TRUE(files.see("root/b", {.permissions = 0640}));
  EXPECT_EQ(files.readers(map, "root"), 0770U);
  ASSERT_TRUE(files.see("root/index", {.permissions = 0600}));
  EXPECT_EQ(files.readers(map, "root"), 0700U);
}

TEST_P(HeldDirectoryTest, InAStoreOfAnotherUserWhatRootMakesIsThatUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes things for others";
  constexpr uid_t kOther = 65534;
  ASSERT_EQ(::chown(at("store").c_str(), kOther, kOther), 0);
  ASSERT_EQ(::chmod(at("store").c_str(), 02770), 0);
  const mode_t before = ::umask(022);
  {
    const auto held = hold("store", {.follow = true, .store = true});
    ASSERT_TRUE(io_->make_dir(at("store/new")));
    put("store/new/file", "text");
  }
  ::umask(before);
  for (const char* name : {"store/new", "store/new/file"}) {
    struct stat status {};
    ASSERT_EQ(::stat(at(name).c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, kOther) << name;
    EXPECT_EQ(status.st_gid, kOther) << name;
  }
  EXPECT_EQ(permissions("store/new"), 0770U);
  EXPECT_EQ(permissions("store/new/file"), 0660U);
}

INSTANTIATE_TEST_SUITE_P(All, HeldDirectoryTest, testing::Values(IoKind::threads, IoKind::uring),
                         [](const auto& kind) { return kind.param == IoKind::uring ? "uring" : "threads"; });

TEST(Beneath, WithAndWithoutTheCallTheSameIsOpened) {
  const TempDir directory;
  const auto at = [&](const std::string& name) { return directory.path() + "/" + name; };
  fs::create_directories(at("root/a/b"));
  fs::create_directory(at("outside"));
  fs::create_directory_symlink("../../outside", at("root/a/out"));
  fs::create_directory_symlink("b", at("root/a/in"));
  const UniqueFd root(::open(at("root").c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_TRUE(root);
  struct Case {
    std::string path;
    int reason;
  };
  for (const auto& [path, reason] :
       {Case{"a", 0}, Case{"a/b", 0}, Case{".", 0}, Case{"a/out", ELOOP}, Case{"a/in", ELOOP}, Case{"a/in/x", ELOOP},
        Case{"a/none", ENOENT}, Case{"../outside", EXDEV}, Case{"/", EXDEV}}) {
    for (const auto open : {open_beneath, open_by_steps}) {
      errno = 0;
      const UniqueFd fd = open(root.get(), path, O_RDONLY, 0);
      EXPECT_EQ(fd ? 0 : errno, reason) << path;
    }
  }
  for (const auto open : {open_beneath, open_by_steps}) {
    const UniqueFd made = open(root.get(), "a/b/new", O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_TRUE(made);
    fs::remove(at("root/a/b/new"));
  }
  EXPECT_EQ(first_link(root.get(), "a/in/x"), "a/in");
  EXPECT_EQ(first_link(root.get(), "a/b"), "");
}

TEST(NewRights, FollowTheStoreWhereItIsSharedOrAnothers) {
  using Owned = NewRights::Owned;
  const auto mode = [](mode_t store_mode, uid_t owner, uid_t self, mode_t made, mode_t usual, mode_t allowed = 0777) {
    const NewRights rights{.store = Owned{.owner = owner, .group = 7, .mode = store_mode}, .allowed = allowed};
    return rights.wanted({.owner = self, .group = 3, .mode = made}, self, usual);
  };
  EXPECT_EQ(mode(0755, 5, 5, 0644, 0666).mode, 0644U);
  EXPECT_EQ(mode(02775, 5, 6, 0755, 0777).mode, 02775U);  // a group's store, of whatever umask
  EXPECT_EQ(mode(02775, 5, 6, 0644, 0666).mode, 0664U);
  EXPECT_EQ(mode(02775, 5, 6, 0644, 0666).owner, 6U);
  EXPECT_EQ(mode(0700, 5, 0, 0644, 0666).mode, 0600U);  // root, in the store of another user
  EXPECT_EQ(mode(0700, 5, 0, 0644, 0666).owner, 5U);
  EXPECT_EQ(mode(0700, 5, 0, 0644, 0666).group, 7U);
  EXPECT_EQ(mode(0777, 5, 0, 0600, 0666).mode, 0664U);  // never writable by everybody
  EXPECT_EQ(mode(0755, 0, 0, 0600, 0666).mode, 0600U);  // root's own: its umask counts
  EXPECT_EQ(mode(02775, 5, 6, 0600, 0666, readers_of(0600)).mode, 0600U);
}

}  // namespace
}  // namespace ckpt
