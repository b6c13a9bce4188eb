// The contract of every Io: requests in flight.
#include <thread>
#include "engine/io_contract.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace ckpt {
namespace {

/// The descriptor of the ring that was opened last is another file's from now on, so the kernel refuses to enter it.
void replace_newest_ring() {
  int ring = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != "anon_inode:[io_uring]") continue;
    ring = std::max(ring, std::stoi(entry.path().filename().string()));
  }
  ASSERT_GE(ring, 0);
  const int other = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::dup2(other, ring), ring);
  ::close(other);
}

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
  Block block(kAlignment);
  for (unsigned round = 0; round < 20; ++round) {
    auto file = io_->open(at("file"), {.mode = Mode::read, .direct = round % 2 == 0});
    ASSERT_TRUE(file);
    ASSERT_TRUE(io_->submit({.op = Request::Op::read,
                             .file = *file,
                             .offset = 0,
                             .data = block.data(),
                             .bytes = kAlignment,
                             .tag = round}));
    std::size_t found = 0;
    while (found == 0) {
      std::this_thread::yield();  // to the thread that reads
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
  EXPECT_EQ(error.message.rfind(at("file") + ": cannot write at offset 8192: ", 0), 0U) << error.message;
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
    auto io = io_->new_instance();
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

TEST_P(IoContract, WhatWasCompleteWhenTheQueueBrokeIsGivenOut) {
  if (io_->name() != "io_uring") return;  // has no ring that breaks
  put("file", std::string(kAlignment, 'y'));
  auto io = io_->new_instance();
  ASSERT_TRUE(io);
  auto file = (*io)->open(at("file"), {.mode = Mode::read});
  ASSERT_TRUE(file);
  Block whole(kAlignment);
  Block beyond(2 * kAlignment);  // the read that meets the end asks once more, of a ring that is gone
  ASSERT_TRUE((*io)->submit({.file = *file, .data = whole.data(), .bytes = whole.size(), .tag = 1}));
  ASSERT_TRUE((*io)->submit({.file = *file, .data = beyond.data(), .bytes = beyond.size(), .tag = 2}));
  replace_newest_ring();
  Completion out[2];
  ASSERT_EQ((*io)->reap(out, true).value_or(9), 1U);
  EXPECT_EQ(out[0].tag, 1U);
  EXPECT_EQ(out[0].bytes.value_or(0), kAlignment);
  const auto after = (*io)->reap(out, true);
  EXPECT_EQ(code(after), Errc::io);
  EXPECT_EQ(code((*io)->submit({.file = *file, .data = whole.data(), .bytes = whole.size()})), Errc::io);
}

TEST_P(IoContract, AFreshInstanceWorksInAnotherThread) {
  put("file", std::string(kAlignment, 'y'));
  auto io = io_->new_instance();
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

INSTANTIATE_TEST_SUITE_P(Io, IoContract, testing::ValuesIn(io_subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ckpt
