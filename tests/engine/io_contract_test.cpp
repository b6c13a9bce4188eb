// One suite for every Io: what engine/io.hpp promises holds for the ring, the threads and the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "engine/io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

using Mode = OpenOptions::Mode;

constexpr std::size_t kDepth = 8;

struct Subject {
  std::string name;
  std::function<Result<std::unique_ptr<Io>>()> open;
};

/// Aligned bytes, filled by a seed.
class Block {
 public:
  explicit Block(std::size_t bytes, unsigned seed = 0) : bytes_(bytes) {
    data_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
    for (std::size_t i = 0; i < bytes; ++i)
      data_.get()[i] = std::byte(static_cast<unsigned char>((i * 31 + seed * 7 + i / 251) & 0xff));
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data(), size()}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

class IoContract : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    auto io = GetParam().open();
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io) << io.error().message;
    io_ = std::move(*io);
    root_ = directory_.path();
    if (io_->name() == "memory") {
      root_ = "/root";
      ASSERT_TRUE(io_->make_dir(root_));
    }
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }

  /// Makes a file with these bytes.
  void put(const std::string& name, std::string_view text) {
    auto file = io_->open(at(name), {.mode = Mode::write_new});
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(io_->write_at(*file, 0, std::as_bytes(std::span(text))));
    ASSERT_TRUE(io_->close(*file));
  }
  std::string text(const std::string& name) {
    auto read = read_small_file(*io_, at(name), 1U << 20);
    return read ? *read : "error: " + read.error().message;
  }
  /// Reaps until nothing is in flight: tag -> result.
  std::map<std::uint64_t, Result<std::size_t>> drain(Io& io) {
    std::map<std::uint64_t, Result<std::size_t>> results;
    for (;;) {
      Completion out[3];
      auto count = io.reap(out, true);
      EXPECT_TRUE(count);
      if (!count || *count == 0) return results;
      for (std::size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(results.emplace(out[i].tag, std::move(out[i].bytes)).second) << "tag given twice";
      }
    }
  }
  template <class T>
  static Errc code(const Result<T>& result) {
    return result ? Errc::differs : result.error().code;  // differs is never an Io's error
  }

  TempDir directory_;
  std::unique_ptr<Io> io_;
  std::string root_;
};

// --- the queue -------------------------------------------------------------------------------------------------

TEST_P(IoContract, WhatTheQueueWroteItReadsBack) {
  for (const bool direct : {false, true}) {
    constexpr std::size_t kBytes = 3 * kAlignment;
    const std::string path = at(direct ? "direct" : "buffered");
    auto file = io_->open(path, {.mode = Mode::write_new, .direct = direct});
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(io_->allocate(*file, 40 * kBytes));
    std::vector<Block> written;
    for (unsigned i = 0; i < 40; ++i) written.emplace_back(kBytes, i);
    std::size_t finished = 0;
    for (unsigned i = 0; i < 40; ++i) {
      if (i >= kDepth) {
        Completion one[1];
        auto count = io_->reap(one, true);
        ASSERT_TRUE(count);
        ASSERT_EQ(*count, 1U);
        ASSERT_EQ(one[0].bytes.value_or(0), kBytes);
        ++finished;
      }
      ASSERT_TRUE(io_->submit({.op = Request::Op::write,
                               .file = *file,
                               .offset = i * kBytes,
                               .data = written[i].data(),
                               .bytes = kBytes,
                               .tag = i}));
    }
    for (const auto& [tag, bytes] : drain(*io_)) {
      EXPECT_EQ(bytes.value_or(0), kBytes) << tag;
      ++finished;
    }
    EXPECT_EQ(finished, 40U);
    ASSERT_TRUE(io_->sync(*file));
    ASSERT_TRUE(io_->close(*file));

    auto again = io_->open(path, {.mode = Mode::read, .direct = direct});
    ASSERT_TRUE(again);
    std::vector<Block> seen;
    for (unsigned i = 0; i < 40; ++i) seen.emplace_back(kBytes, 99);
    for (unsigned first = 0; first < 40; first += kDepth) {
      for (unsigned i = first; i < first + kDepth; ++i) {
        ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                                 .file = *again,
                                 .offset = i * kBytes,
                                 .data = seen[i].data(),
                                 .bytes = kBytes,
                                 .tag = i}));
      }
      const auto results = drain(*io_);
      EXPECT_EQ(results.size(), kDepth);
      for (const auto& [tag, bytes] : results) EXPECT_EQ(bytes.value_or(0), kBytes) << tag;
    }
    for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(std::memcmp(seen[i].data(), written[i].data(), kBytes), 0) << i;
    ASSERT_TRUE(io_->close(*again));
  }
}

TEST_P(IoContract, AReadThatMeetsTheEndIsShort) {
  constexpr std::size_t kFile = 2 * kAlignment + 777;
  const Block written(kFile, 5);
  put("file", {reinterpret_cast<const char*>(written.data()), kFile});
  for (const bool direct : {false, true}) {
    auto file = io_->open(at("file"), {.mode = Mode::read, .direct = direct});
    ASSERT_TRUE(file);
    Block whole(4 * kAlignment, 9);
    Block tail(kAlignment, 9);
    Block beyond(kAlignment, 9);
    ASSERT_TRUE(io_->submit(
        {.op = Request::Op::read, .file = *file, .offset = 0, .data = whole.data(), .bytes = whole.size(), .tag = 1}));
    ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                             .file = *file,
                             .offset = 2 * kAlignment,
                             .data = tail.data(),
                             .bytes = tail.size(),
                             .tag = 2}));
    ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                             .file = *file,
                             .offset = 8 * kAlignment,
                             .data = beyond.data(),
                             .bytes = beyond.size(),
                             .tag = 3}));
    auto results = drain(*io_);
    ASSERT_EQ(results.size(), 3U);
    EXPECT_EQ(results.at(1).value_or(0), kFile);
    EXPECT_EQ(results.at(2).value_or(0), 777U);
    EXPECT_EQ(results.at(3).value_or(99), 0U);
    EXPECT_EQ(std::memcmp(whole.data(), written.data(), kFile), 0);
    EXPECT_EQ(std::memcmp(tail.data(), written.data() + 2 * kAlignment, 777), 0);
    ASSERT_TRUE(io_->close(*file));
  }
}

TEST_P(IoContract, AFullQueueRefusesOneMoreAndKeepsTheOthers) {
  put("file", std::string(kAlignment, 'x'));
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  ASSERT_EQ(io_->queue_depth(), kDepth);
  std::vector<Block> blocks;
  for (unsigned i = 0; i <= kDepth; ++i) blocks.emplace_back(kAlignment);
  for (unsigned i = 0; i < kDepth; ++i) {
    ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                             .file = *file,
                             .offset = 0,
                             .data = blocks[i].data(),
                             .bytes = kAlignment,
                             .tag = i}));
  }
  EXPECT_EQ(
      code(io_->submit(
          {.op = Request::Op::read, .file = *file, .data = blocks[kDepth].data(), .bytes = kAlignment, .tag = 77})),
      Errc::internal);
  const auto results = drain(*io_);
  EXPECT_EQ(results.size(), kDepth);
  EXPECT_EQ(results.count(77), 0U);
}

TEST_P(IoContract, ReapWithNothingInFlightReturnsAtOnce) {
  Completion out[2];
  EXPECT_EQ(io_->reap(out, true).value_or(9), 0U);
  EXPECT_EQ(io_->reap(out, false).value_or(9), 0U);
}

TEST_P(IoContract, PollingFindsEveryCompletion) {
  put("file", std::string(kAlignment, 'x'));
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  Block block(kAlignment);
  for (unsigned round = 0; round < 20; ++round) {
    ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                             .file = *file,
                             .offset = 0,
                             .data = block.data(),
                             .bytes = kAlignment,
                             .tag = round}));
    std::size_t found = 0;
    for (unsigned polls = 0; found == 0 && polls < 1'000'000; ++polls) {
      Completion out[4];
      auto count = io_->reap(out, false);
      ASSERT_TRUE(count);
      found += *count;
      if (*count > 0) {
        EXPECT_EQ(out[0].tag, round);
      }
    }
    ASSERT_EQ(found, 1U);
  }
}

TEST_P(IoContract, UnalignedRequestsOnADirectFileAreRefused) {
  auto file = io_->open(at("file"), {.mode = Mode::write_new, .direct = true});
  ASSERT_TRUE(file);
  if (!io_->is_direct(*file)) GTEST_SKIP() << "direct I/O is refused here";
  Block block(2 * kAlignment);
  const auto submit = [&](std::uint64_t offset, std::size_t shift, std::size_t bytes) {
    return code(io_->submit(
        {.op = Request::Op::write, .file = *file, .offset = offset, .data = block.data() + shift, .bytes = bytes}));
  };
  EXPECT_EQ(submit(512, 0, kAlignment), Errc::internal);
  EXPECT_EQ(submit(0, 512, kAlignment), Errc::internal);
  EXPECT_EQ(submit(0, 0, 512), Errc::internal);
  EXPECT_EQ(code(io_->write_at(*file, 0, block.span())), Errc::internal);
  EXPECT_EQ(code(io_->read_at(*file, 0, block.span())), Errc::internal);
  EXPECT_EQ(io_->info(*file)->bytes, 0U);
}

TEST_P(IoContract, AFailedRequestSaysFileAndOffset) {
  put("file", "x");
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  Block block(kAlignment);
  ASSERT_TRUE(io_->submit({.op = Request::Op::write,
                           .file = *file,
                           .offset = 8192,
                           .data = block.data(),
                           .bytes = block.size(),
                           .tag = 4}));
  auto results = drain(*io_);
  ASSERT_EQ(results.size(), 1U);
  ASSERT_FALSE(results.at(4));
  const Error& error = results.at(4).error();
  EXPECT_EQ(error.code, Errc::io);
  EXPECT_EQ(error.file, at("file"));
  EXPECT_EQ(error.offset, 8192U);
  EXPECT_EQ(error.message.rfind(at("file") + ": write at 8192: ", 0), 0U) << error.message;
}

TEST_P(IoContract, RequestsWithoutBytesOrFileAreRefused) {
  put("file", "x");
  auto file = io_->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  Block block(kAlignment);
  EXPECT_EQ(code(io_->submit({.file = *file, .data = block.data(), .bytes = 0})), Errc::internal);
  EXPECT_EQ(code(io_->submit({.file = FileHandle{}, .data = block.data(), .bytes = 1})), Errc::internal);
  EXPECT_EQ(code(io_->submit({.file = FileHandle{12345}, .data = block.data(), .bytes = 1})), Errc::internal);
  EXPECT_FALSE(io_->submit({.file = *file, .offset = UINT64_MAX - 1, .data = block.data(), .bytes = 16}));
  EXPECT_FALSE(io_->submit({.file = *file, .offset = UINT64_MAX / 2, .data = block.data(), .bytes = 16}));
  Completion out[1];
  EXPECT_EQ(io_->reap(out, true).value_or(9), 0U);
}

TEST_P(IoContract, AFileWithRequestsInFlightIsNeitherSyncedNorClosed) {
  auto file = io_->open(at("file"), {.mode = Mode::write_new});
  ASSERT_TRUE(file);
  Block block(kAlignment);
  ASSERT_TRUE(io_->submit({.op = Request::Op::write, .file = *file, .data = block.data(), .bytes = block.size()}));
  EXPECT_EQ(code(io_->sync(*file)), Errc::internal);
  EXPECT_EQ(code(io_->truncate(*file, 1)), Errc::internal);
  EXPECT_EQ(code(io_->close(*file)), Errc::internal);
  EXPECT_EQ(drain(*io_).size(), 1U);
  EXPECT_TRUE(io_->sync(*file));
  EXPECT_TRUE(io_->close(*file));
}

TEST_P(IoContract, NoBufferIsTouchedAfterTheIoIsGone) {
  put("file", std::string(64 * kAlignment, 'x'));
  for (int round = 0; round < 10; ++round) {
    auto io = io_->fresh();
    ASSERT_TRUE(io);
    Block block(64 * kAlignment, 3);
    auto file = (*io)->open(at("file"), {.mode = Mode::read, .direct = true});
    ASSERT_TRUE(file);
    for (std::size_t i = 0; i < kDepth; ++i) {
      ASSERT_TRUE((*io)->submit({.file = *file,
                                 .offset = i * 8 * kAlignment,
                                 .data = block.data() + i * 8 * kAlignment,
                                 .bytes = 8 * kAlignment}));
    }
    io->reset();
    std::memset(block.data(), 7, block.size());
    std::this_thread::yield();
    EXPECT_EQ(std::count(block.data(), block.data() + block.size(), std::byte{7}),
              static_cast<std::ptrdiff_t>(block.size()));
  }
}

TEST_P(IoContract, AFreshInstanceWorksInAnotherThread) {
  put("file", std::string(kAlignment, 'y'));
  auto io = io_->fresh();
  ASSERT_TRUE(io);
  EXPECT_EQ((*io)->name(), io_->name());
  EXPECT_EQ((*io)->queue_depth(), io_->queue_depth());
  Block here(kAlignment);
  Block there(kAlignment);
  const auto read = [this](Io& with, Block& block) {
    auto file = with.open(at("file"), {.mode = Mode::read});
    if (!file || !with.submit({.file = *file, .data = block.data(), .bytes = kAlignment})) return false;
    Completion out[1];
    return with.reap(out, true).value_or(0) == 1 && out[0].bytes.value_or(0) == kAlignment;
  };
  bool read_there = false;
  std::thread thread([&] { read_there = read(**io, there); });
  EXPECT_TRUE(read(*io_, here));
  thread.join();
  EXPECT_TRUE(read_there);
  EXPECT_EQ(there.data()[17], std::byte{'y'});
}

// --- files -----------------------------------------------------------------------------------------------------

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
  EXPECT_EQ(missing.error().message, at("none") + ": open: No such file or directory");
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
  auto other = io_->fresh();
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

std::vector<Subject> subjects() {
  return {{.name = "threads", .open = [] { return open_io(IoKind::threads, kDepth); }},
          {.name = "uring", .open = [] { return open_io(IoKind::uring, kDepth); }}};
}
INSTANTIATE_TEST_SUITE_P(Io, IoContract, testing::ValuesIn(subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ckpt
