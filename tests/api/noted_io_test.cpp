// What a process has changed, and that it is ended before its first change or not at all.
#include "api/run/noted_io.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "support/memory_io.hpp"

namespace ckpt {
namespace {

constexpr OpenOptions kNew{.mode = OpenOptions::Mode::write_new};

TEST(NotedIo, WhatIsReadAndWhatIsRefusedChangesNothing) {
  MemoryDisk disk;
  disk.put("/d/f", "x");
  Changes changes;
  const auto io = make_noted_io(disk.io(), changes);
  EXPECT_TRUE(io->list("/d"));
  const auto read = io->open("/d/f", {});
  ASSERT_TRUE(read);
  EXPECT_TRUE(io->close(*read));
  EXPECT_EQ(io->open("/d/f", kNew).error().code, Errc::target_exists);
  EXPECT_EQ(io->make_dir("/d").error().code, Errc::target_exists);
  EXPECT_EQ(io->unlink("/d/none").error().code, Errc::not_found);
  EXPECT_TRUE(changes.refuse());
}

TEST(NotedIo, AfterAChangeNothingIsRefused) {
  MemoryDisk disk;
  disk.put("/d/f", "x");
  Changes changes;
  const auto io = make_noted_io(disk.io(), changes);
  EXPECT_TRUE(io->unlink("/d/f"));
  EXPECT_FALSE(changes.refuse());
  EXPECT_TRUE(io->make_dir("/e"));
}

TEST(NotedIo, OnceChangesAreRefusedNoneIsMade) {
  MemoryDisk disk;
  disk.put("/d/f", "x");
  const auto before = disk.tree();
  Changes changes;
  const auto io = make_noted_io(disk.io(), changes);
  ASSERT_TRUE(changes.refuse());
  EXPECT_EQ(io->open("/d/g", kNew).error().code, Errc::interrupted);
  EXPECT_EQ(io->make_dir("/e").error().code, Errc::interrupted);
  EXPECT_EQ(io->unlink("/d/f").error().code, Errc::interrupted);
  EXPECT_EQ(io->rename("/d/f", "/d/h", RenameMode::replace).error().code, Errc::interrupted);
  const auto own = io->new_instance();
  ASSERT_TRUE(own);
  EXPECT_EQ((*own)->unlink("/d/f").error().code, Errc::interrupted);
  EXPECT_EQ(disk.tree(), before);
}

TEST(NotedIo, AnAttemptUnderWayIsNotRefused) {
  Changes changes;
  ASSERT_TRUE(changes.begin());
  EXPECT_FALSE(changes.refuse());
  ASSERT_TRUE(changes.begin());
  changes.end(false);
  EXPECT_FALSE(changes.refuse());
  changes.end(false);
  EXPECT_TRUE(changes.refuse());
  EXPECT_FALSE(changes.begin());
}

TEST(NotedIo, EitherTheChangeOrTheEndIsFirst) {
  for (int round = 0; round < 500; ++round) {
    Changes changes;
    std::atomic<bool> begun{false};
    std::atomic<bool> refused{false};
    {
      const std::jthread one([&] {
        if (!changes.begin()) return;
        begun = true;
        changes.end(true);
      });
      const std::jthread other([&] { refused = changes.refuse(); });
    }
    EXPECT_NE(begun.load(), refused.load());
  }
}

}  // namespace
}  // namespace ckpt
