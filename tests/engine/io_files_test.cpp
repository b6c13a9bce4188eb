// The contract of every Io: files and names.
#include "engine/io_contract.hpp"

namespace ckpt {
namespace {

TEST_P(IoContract, OpenTellsMissingExistingAndForeignKindsApart) {
  put("file", "x");
  ASSERT_TRUE(io_->make_dir(at("dir")));
  EXPECT_EQ(code(io_->open(at("none"), {.mode = Mode::read})), Errc::not_found);
  EXPECT_EQ(code(io_->open(at("none"), {.mode = Mode::write_existing})), Errc::not_found);
  EXPECT_EQ(code(io_->open(at("file/below"), {.mode = Mode::read})), Errc::not_found);
  EXPECT_EQ(code(io_->open(at("none/new"), {.mode = Mode::write_new})), Errc::not_found);
  EXPECT_EQ(code(io_->open(at("file"), {.mode = Mode::write_new})), Errc::target_exists);
  EXPECT_EQ(code(io_->open(at("dir"), {.mode = Mode::read})), Errc::io);
  EXPECT_EQ(text("file"), "x");
  const auto missing = io_->open(at("none"), {.mode = Mode::read});
  EXPECT_EQ(missing.error().file, at("none"));
  EXPECT_EQ(missing.error().message, at("none") + ": No such file or directory");
}

TEST_P(IoContract, OpeningAnExistingFileForWritingKeepsItsBytes) {
  put("file", "abcdef");
  auto file = io_->open(at("file"), {.mode = Mode::write_existing});
  ASSERT_TRUE(file);
  const std::string_view changed = "XY";
  ASSERT_TRUE(io_->write_at(*file, 2, std::as_bytes(std::span(changed))));
  ASSERT_TRUE(io_->close(*file));
  EXPECT_EQ(text("file"), "abXYef");
}

TEST_P(IoContract, AShortReadOfMetadataIsCorruptAndSaysWhereTheFileEnds) {
  put("file", "abc");
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  std::byte out[4];
  EXPECT_TRUE(io_->read_at(*file, 1, std::span(out, 2)));
  EXPECT_EQ(out[0], std::byte{'b'});
  const auto cut = io_->read_at(*file, 1, std::span(out, 4));
  ASSERT_EQ(code(cut), Errc::corrupt);
  EXPECT_EQ(cut.error().file, at("file"));
  EXPECT_EQ(cut.error().offset, 3U);
}

TEST_P(IoContract, AllocateGivesTheSizeInZerosAndTruncateCutsIt) {
  auto file = io_->open(at("file"), {.mode = Mode::write_new});
  ASSERT_TRUE(file);
  ASSERT_TRUE(io_->allocate(*file, 0));
  ASSERT_TRUE(io_->allocate(*file, 3 * kAlignment));
  EXPECT_EQ(io_->info(*file)->bytes, 3 * kAlignment);
  ASSERT_TRUE(io_->allocate(*file, kAlignment));  // reserves, never shrinks
  EXPECT_EQ(io_->info(*file)->bytes, 3 * kAlignment);
  ASSERT_TRUE(io_->truncate(*file, 5));
  ASSERT_TRUE(io_->close(*file));
  EXPECT_EQ(text("file"), std::string(5, '\0'));
}

TEST_P(IoContract, ADirectFileIsCutToItsExactLength) {
  auto file = io_->open(at("file"), {.mode = Mode::write_new, .direct = true});
  ASSERT_TRUE(file);
  Block block(kAlignment, 4);
  ASSERT_TRUE(io_->allocate(*file, kAlignment));
  ASSERT_TRUE(io_->submit({.op = Request::Op::write, .file = *file, .data = block.data(), .bytes = kAlignment}));
  EXPECT_EQ(drain(*io_).size(), 1U);
  ASSERT_TRUE(io_->truncate(*file, 1001));
  ASSERT_TRUE(io_->sync(*file));
  ASSERT_TRUE(io_->close(*file));
  EXPECT_EQ(text("file"), std::string(reinterpret_cast<const char*>(block.data()), 1001));
}

TEST_P(IoContract, AClosedHandleIsNoFile) {
  put("file", "x");
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  ASSERT_TRUE(io_->close(*file));
  std::byte out[1];
  EXPECT_EQ(code(io_->close(*file)), Errc::internal);
  EXPECT_EQ(code(io_->info(*file)), Errc::internal);
  EXPECT_EQ(code(io_->sync(*file)), Errc::internal);
  EXPECT_EQ(code(io_->allocate(*file, 1)), Errc::internal);
  EXPECT_EQ(code(io_->read_at(*file, 0, out)), Errc::internal);
  EXPECT_EQ(code(io_->write_at(*file, 0, out)), Errc::internal);
  EXPECT_FALSE(io_->is_direct(*file));
}

TEST_P(IoContract, SmallFilesAreReadWholeOrRefused) {
  put("file", "0123456789");
  put("empty", "");
  EXPECT_EQ(read_small_file(*io_, at("file"), 10).value_or("?"), "0123456789");
  EXPECT_EQ(read_small_file(*io_, at("empty"), 0).value_or("?"), "");
  EXPECT_EQ(code(read_small_file(*io_, at("file"), 9)), Errc::corrupt);
  EXPECT_EQ(code(read_small_file(*io_, at("none"), 9)), Errc::not_found);
}

// --- names -----------------------------------------------------------------------------------------------------

TEST_P(IoContract, StatAndInfoAgree) {
  put("file", "12345");
  ASSERT_TRUE(io_->make_dir(at("dir")));
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  const auto named = io_->stat(at("file"));
  const auto opened = io_->info(*file);
  ASSERT_TRUE(named && opened);
  EXPECT_EQ(named->kind, FileInfo::Kind::file);
  EXPECT_EQ(named->bytes, 5U);
  EXPECT_EQ(named->inode, opened->inode);
  EXPECT_EQ(named->device, opened->device);
  EXPECT_EQ(named->mtime_ns, opened->mtime_ns);
  const auto directory = io_->stat(at("dir"));
  ASSERT_TRUE(directory);
  EXPECT_EQ(directory->kind, FileInfo::Kind::directory);
  EXPECT_NE(directory->inode, named->inode);
  EXPECT_EQ(code(io_->stat(at("none"))), Errc::not_found);
  EXPECT_EQ(code(io_->stat(at("file/below"))), Errc::not_found);
}

TEST_P(IoContract, ListIsSortedByBytes) {
  put("b", "");
  put("B", "");
  put("\xc3\xa4", "");
  ASSERT_TRUE(io_->make_dir(at("a")));
  put("a/inner", "");
  const auto entries = io_->list(root_);
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 4U);
  EXPECT_EQ((*entries)[0].name, "B");
  EXPECT_EQ((*entries)[1].name, "a");
  EXPECT_EQ((*entries)[1].kind, FileInfo::Kind::directory);
  EXPECT_EQ((*entries)[2].name, "b");
  EXPECT_EQ((*entries)[2].kind, FileInfo::Kind::file);
  EXPECT_EQ((*entries)[3].name, "\xc3\xa4");
  EXPECT_EQ(code(io_->list(at("none"))), Errc::not_found);
  EXPECT_EQ(code(io_->list(at("b"))), Errc::io);
}

TEST_P(IoContract, DirectoriesAreMadeOnceAndRemovedEmpty) {
  ASSERT_TRUE(io_->make_dir(at("dir")));
  EXPECT_EQ(code(io_->make_dir(at("dir"))), Errc::target_exists);
  EXPECT_EQ(code(io_->make_dir(at("none/dir"))), Errc::not_found);
  put("dir/file", "x");
  EXPECT_FALSE(io_->remove_dir(at("dir")));
  EXPECT_FALSE(io_->unlink(at("dir")));
  EXPECT_FALSE(io_->remove_dir(at("dir/file")));
  EXPECT_TRUE(io_->sync_dir(at("dir")));
  EXPECT_FALSE(io_->sync_dir(at("dir/file")));
  EXPECT_TRUE(io_->unlink(at("dir/file")));
  EXPECT_EQ(code(io_->unlink(at("dir/file"))), Errc::not_found);
  EXPECT_TRUE(io_->remove_dir(at("dir")));
  EXPECT_EQ(code(io_->stat(at("dir"))), Errc::not_found);
  EXPECT_EQ(code(io_->sync_dir(at("dir"))), Errc::not_found);
}

TEST_P(IoContract, RenameWithoutReplacingLeavesBothWhereTheTargetIs) {
  put("a", "A");
  put("b", "B");
  EXPECT_EQ(code(io_->rename(at("a"), at("b"), RenameMode::no_replace)), Errc::target_exists);
  EXPECT_EQ(text("a"), "A");
  EXPECT_EQ(text("b"), "B");
  EXPECT_TRUE(io_->rename(at("a"), at("c"), RenameMode::no_replace));
  EXPECT_EQ(text("c"), "A");
  EXPECT_EQ(code(io_->stat(at("a"))), Errc::not_found);
  EXPECT_EQ(code(io_->rename(at("a"), at("d"), RenameMode::no_replace)), Errc::not_found);
  ASSERT_TRUE(io_->make_dir(at("x")));
  ASSERT_TRUE(io_->make_dir(at("empty")));
  EXPECT_EQ(code(io_->rename(at("x"), at("empty"), RenameMode::no_replace)), Errc::target_exists);
}

TEST_P(IoContract, RenameReplacesFiles) {
  put("a", "A");
  put("b", "B");
  EXPECT_TRUE(io_->rename(at("a"), at("b"), RenameMode::replace));
  EXPECT_EQ(text("b"), "A");
  EXPECT_EQ(code(io_->stat(at("a"))), Errc::not_found);
}

TEST_P(IoContract, RenameExchangesWholeDirectories) {
  ASSERT_TRUE(io_->make_dir(at("old")));
  ASSERT_TRUE(io_->make_dir(at("new")));
  put("old/file", "O");
  put("new/file", "N");
  EXPECT_TRUE(io_->rename(at("new"), at("old"), RenameMode::exchange));
  EXPECT_EQ(text("old/file"), "N");
  EXPECT_EQ(text("new/file"), "O");
  EXPECT_FALSE(io_->rename(at("new"), at("none"), RenameMode::exchange));
  EXPECT_EQ(text("new/file"), "O");
}

TEST_P(IoContract, ALockExcludesOthersUntilItIsGone) {
  put("file", "");
  ASSERT_TRUE(io_->make_dir(at("dir")));
  auto other = io_->new_instance();
  ASSERT_TRUE(other);
  for (const std::string& path : {at("file"), at("dir")}) {
    auto exclusive = io_->lock(path, LockMode::exclusive);
    ASSERT_TRUE(exclusive) << exclusive.error().message;
    EXPECT_EQ(code((*other)->lock(path, LockMode::shared)), Errc::locked);
    EXPECT_EQ(code((*other)->lock(path, LockMode::exclusive)), Errc::locked);
    exclusive->reset();
    auto first = io_->lock(path, LockMode::shared);
    auto second = (*other)->lock(path, LockMode::shared);
    EXPECT_TRUE(first && second);
    EXPECT_EQ(code((*other)->lock(path, LockMode::exclusive)), Errc::locked);
  }
  EXPECT_TRUE((*other)->lock(at("file"), LockMode::exclusive));
  EXPECT_EQ(code(io_->lock(at("none"), LockMode::exclusive)), Errc::not_found);
}

TEST_P(IoContract, ALockFollowsWhatItWasTakenOnThroughARename) {
  ASSERT_TRUE(io_->make_dir(at("partial")));
  auto held = io_->lock(at("partial"), LockMode::exclusive);
  ASSERT_TRUE(held);
  ASSERT_TRUE(io_->rename(at("partial"), at("final"), RenameMode::no_replace));
  EXPECT_EQ(code(io_->lock(at("final"), LockMode::shared)), Errc::locked);
  ASSERT_TRUE(io_->make_dir(at("partial")));
  EXPECT_TRUE(io_->lock(at("partial"), LockMode::exclusive));
}

TEST_P(IoContract, FreeBytesAreTold) {
  const auto before = io_->free_bytes(root_);
  ASSERT_TRUE(before);
  EXPECT_GT(*before, 0U);
  EXPECT_EQ(code(io_->free_bytes(at("none"))), Errc::not_found);
}

INSTANTIATE_TEST_SUITE_P(Io, IoContract, testing::ValuesIn(io_subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ckpt
