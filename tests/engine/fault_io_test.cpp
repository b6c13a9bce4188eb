// The tools that other tests trust: a disk that forgets, and failures that come when they are asked for.
#include "support/fault_io.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/memory_io.hpp"

namespace ckpt {
namespace {

Result<> write_file(Io& io, const std::string& path, const std::string& text, bool sync) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new}));
  CKPT_CHECK(io.write_at(file, 0, std::as_bytes(std::span(text))));
  if (sync) CKPT_CHECK(io.sync(file));
  return io.close(file);
}

TEST(MemoryDisk, APowerLossTakesWhatWasNotSynced) {
  MemoryDisk disk;
  const auto io = disk.io();
  ASSERT_TRUE(write_file(*io, "/named_and_synced", "text", true));
  ASSERT_TRUE(write_file(*io, "/named_only", "text", false));
  ASSERT_TRUE(io->sync_dir("/"));
  ASSERT_TRUE(write_file(*io, "/synced_only", "text", true));
  disk.power_off();
  EXPECT_EQ(disk.text("/named_and_synced"), "text");
  EXPECT_EQ(disk.text("/named_only"), "");
  EXPECT_EQ(disk.text("/synced_only"), "(none)");
}

TEST(MemoryDisk, ARenameIsUndoneUntilItsDirectoryIsSynced) {
  for (const bool sync : {false, true}) {
    MemoryDisk disk;
    disk.put("/d/old", "text");
    const auto io = disk.io();
    ASSERT_TRUE(io->rename("/d/old", "/d/new", RenameMode::no_replace));
    if (sync) {
      ASSERT_TRUE(io->sync_dir("/d"));
    }
    disk.power_off();
    EXPECT_EQ(disk.text("/d/new"), sync ? "text" : "(none)");
    EXPECT_EQ(disk.text("/d/old"), sync ? "(none)" : "text");
  }
}

TEST(MemoryDisk, APowerLossMaySpareAPrefixOfTheNameOperations) {
  for (std::size_t spared = 0; spared <= 3; ++spared) {
    MemoryDisk disk;
    const auto io = disk.io();
    for (const char* path : {"/a", "/b", "/c"}) ASSERT_TRUE(write_file(*io, path, "", false));
    disk.power_off({.name_operations = spared});
    EXPECT_EQ(disk.tree().size(), spared);
  }
}

TEST(MemoryDisk, APowerLossMayTearAFileAtBlocks) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    MemoryDisk disk;
    disk.put("/f", std::string(8192, 'o'));
    const auto io = disk.io();
    const auto file = io->open("/f", {.mode = OpenOptions::Mode::write_existing});
    ASSERT_TRUE(file);
    const std::string text(8192, 'n');
    ASSERT_TRUE(io->write_at(*file, 0, std::as_bytes(std::span(text))));
    disk.power_off({.block_seed = seed});
    const std::string left = disk.text("/f");
    ASSERT_EQ(left.size(), 8192U);
    EXPECT_EQ(left.substr(0, 4096), std::string(4096, left[0]));
    EXPECT_EQ(left.substr(4096), std::string(4096, left[4096]));
    outcomes.insert({left[0], left[4096]});
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"oo", "on", "no", "nn"}));
}

TEST(MemoryDisk, OpenFilesAndLocksDoNotOutliveThePower) {
  MemoryDisk disk;
  disk.put("/f", "text");
  const auto io = disk.io();
  const auto file = io->open("/f", {.mode = OpenOptions::Mode::write_existing});
  auto held = io->lock("/f", LockMode::exclusive);
  ASSERT_TRUE(file && held);
  disk.power_off();
  EXPECT_FALSE(io->sync(*file));
  const auto again = io->lock("/f", LockMode::exclusive);
  EXPECT_TRUE(again);
  held->reset();  // of the earlier life: releases nothing now
  EXPECT_FALSE(io->lock("/f", LockMode::shared));
}

TEST(MemoryDisk, AFullDiskIsNoSpaceAndTheOrderOfRequestsVariesWithTheSeed) {
  MemoryDisk full({.capacity_bytes = 100});
  const auto io = full.io();
  EXPECT_EQ(write_file(*io, "/f", std::string(101, 'x'), false).error().code, Errc::no_space);

  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    MemoryDisk disk({.seed = seed});
    disk.put("/f", "text");
    const auto reader = disk.io();
    const auto file = reader->open("/f", {.mode = OpenOptions::Mode::read});
    ASSERT_TRUE(file);
    std::byte data[4];
    for (std::uint64_t tag = 0; tag < 4; ++tag) {
      ASSERT_TRUE(reader->submit({.file = *file, .data = data, .bytes = 4, .tag = tag}));
    }
    std::vector<std::uint64_t> order;
    Completion out[1];
    while (reader->reap(out, true).value_or(0) == 1) order.push_back(out[0].tag);
    EXPECT_EQ(order.size(), 4U);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 3U);
}

TEST(FaultIo, FailsTheOneOperationAskedForAndTellsWhich) {
  for (std::uint64_t n = 0; n < 4; ++n) {
    MemoryDisk disk;
    const auto plan = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), plan);
    plan->fail_once(n, Errc::no_space);
    const auto done = write_file(*io, "/f", "text", true);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::no_space);
    const std::vector<std::string> expected = {"open /f", "write /f", "fdatasync /f", "close /f"};
    EXPECT_EQ(plan->first_failed(), expected[n]);
    EXPECT_TRUE(io->stat("/"));  // once
  }
}

TEST(FaultIo, FailsEverythingFromAnOperationOnInAllInstances) {
  MemoryDisk disk;
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk.io(), plan);
  const auto other = io->new_instance();
  ASSERT_TRUE(other);
  plan->fail_from(2, Errc::io);
  EXPECT_TRUE(io->stat("/"));
  EXPECT_TRUE((*other)->stat("/"));
  EXPECT_FALSE(io->stat("/"));
  EXPECT_FALSE((*other)->stat("/"));
  EXPECT_EQ(plan->operation_count(), 4U);
  plan->clear();
  EXPECT_TRUE(io->stat("/"));
}

TEST(FaultIo, ALostAnswerHasHappened) {
  MemoryDisk disk;
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk.io(), plan);
  plan->fail_once(0, Errc::io, true);
  EXPECT_FALSE(io->make_dir("/d"));
  EXPECT_EQ(disk.tree(), std::vector<std::string>{"/d/"});
  plan->fail_once(plan->operation_count(), Errc::io);
  EXPECT_FALSE(io->make_dir("/e"));
  EXPECT_EQ(disk.tree(), std::vector<std::string>{"/d/"});
}

TEST(FaultIo, AFailedRequestIsReapedWithItsTagAndHasMovedNothing) {
  MemoryDisk disk;
  disk.put("/f", "text");
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk.io(), plan);
  const auto file = io->open("/f", {.mode = OpenOptions::Mode::write_existing});
  ASSERT_TRUE(file);
  std::byte data[4] = {};
  plan->fail_once(plan->operation_count() + 1, Errc::no_space);
  for (std::uint64_t tag = 10; tag < 13; ++tag) {
    ASSERT_TRUE(io->submit({.op = tag == 11 ? Request::Op::write : Request::Op::read,
                            .file = *file,
                            .data = data,
                            .bytes = 4,
                            .tag = tag}));
  }
  std::set<std::uint64_t> passed;
  Completion out[2];
  for (std::size_t count = 0; (count = io->reap(out, true).value_or(0)) > 0;) {
    for (std::size_t i = 0; i < count; ++i) {
      if (out[i].tag != 11) {
        EXPECT_EQ(out[i].bytes.value_or(0), 4U);
        passed.insert(out[i].tag);
        continue;
      }
      ASSERT_FALSE(out[i].bytes);
      EXPECT_EQ(out[i].bytes.error().code, Errc::no_space);
    }
  }
  EXPECT_EQ(passed, (std::set<std::uint64_t>{10, 12}));
  EXPECT_EQ(disk.text("/f"), "text");
}

TEST(FaultIo, ATornWriteHasMovedItsFirstHalfAndATornReadHasMetTheEnd) {
  MemoryDisk disk;
  disk.put("/f", "01234567");
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk.io(), plan);
  const auto file = io->open("/f", {.mode = OpenOptions::Mode::write_existing});
  ASSERT_TRUE(file);
  std::string text = "abcdefgh";
  const auto bytes = std::as_writable_bytes(std::span(text));

  plan->tear_once(plan->operation_count(), Errc::no_space);
  EXPECT_EQ(io->write_at(*file, 0, bytes).error().code, Errc::no_space);
  EXPECT_EQ(disk.text("/f"), "abcd4567");
  plan->tear_once(plan->operation_count(), Errc::no_space);
  const auto read = io->read_at(*file, 0, bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::corrupt);
  EXPECT_EQ(read.error().offset, 4U);

  for (const auto op : {Request::Op::write, Request::Op::read}) {
    text = "ABCDEFGH";
    plan->tear_once(plan->operation_count(), Errc::no_space);
    ASSERT_TRUE(io->submit({.op = op, .file = *file, .data = bytes.data(), .bytes = 8, .tag = 3}));
    Completion done[1];
    ASSERT_EQ(io->reap(done, true).value_or(0), 1U);
    EXPECT_EQ(done[0].tag, 3U);
    if (op == Request::Op::write) {
      ASSERT_FALSE(done[0].bytes);
      EXPECT_EQ(done[0].bytes.error().code, Errc::no_space);
    } else {
      EXPECT_EQ(done[0].bytes.value_or(0), 4U);
    }
    EXPECT_EQ(disk.text("/f"), "ABCD4567");
  }
}

TEST(FaultIo, CountsOnlyWhatItIsToldToAndCallsAtAnOperation) {
  MemoryDisk disk;
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk.io(), plan);
  plan->count_only({"mkdir"});
  int called = 0;
  plan->call_at(1, [&] { ++called; });
  EXPECT_TRUE(io->make_dir("/a"));
  EXPECT_TRUE(io->stat("/a"));
  EXPECT_EQ(plan->operation_count(), 1U);
  EXPECT_EQ(called, 0);
  EXPECT_TRUE(io->make_dir("/b"));
  EXPECT_TRUE(io->make_dir("/c"));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(plan->first_failed(), "mkdir /b");
}

}  // namespace
}  // namespace ckpt
