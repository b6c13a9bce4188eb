// The offload store over every Io: what is put comes back, memory stays in its bound, the longest unused leaves first.
#include "engine/offload/offload_store.hpp"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "engine/io_contract.hpp"
#include "engine/offload_tensors.hpp"

namespace ckpt {
namespace {

class Offload : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    auto io = GetParam().open();
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    directory_ = (*io)->name() == "memory" ? "/swap" : files_.path() + "/swap";
  }
  std::unique_ptr<OffloadStore> open(std::size_t buffers) {
    auto store = OffloadStore::open(GetParam().open, small_store(buffers, directory_));
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  TempDir files_;
  std::string directory_;
};

TEST_P(Offload, GivesBackWhatWasPutAtEverySizeAroundABlockAndABuffer) {
  auto store = open(6);
  const std::vector<std::size_t> sizes = {0,
                                          1,
                                          kAlignment - 1,
                                          kAlignment,
                                          kAlignment + 1,
                                          kBufferBytes - 1,
                                          kBufferBytes,
                                          kBufferBytes + 1,
                                          5 * kBufferBytes + 77,
                                          6 * kBufferBytes,
                                          6 * kBufferBytes + 1,
                                          20 * kBufferBytes + 4097};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(store->put("t" + std::to_string(i), tensor_bytes(sizes[i], i))) << sizes[i];
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(got(*store, "t" + std::to_string(i)), tensor_bytes(sizes[i], i)) << sizes[i];
    EXPECT_EQ(store->size_of("t" + std::to_string(i)), sizes[i]);
  }
  EXPECT_TRUE(store->flush());
  EXPECT_LE(store->statistics().peak_memory_bytes, 6 * kBufferBytes);
}

TEST_P(Offload, PutCopies) {
  auto store = open(4);
  auto bytes = tensor_bytes(3 * kBufferBytes, 1);
  ASSERT_TRUE(store->put("t", bytes));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  ASSERT_TRUE(store->flush());
  ASSERT_TRUE(store->put("other", tensor_bytes(4 * kBufferBytes, 2)));  // t leaves memory
  EXPECT_EQ(got(*store, "t"), tensor_bytes(3 * kBufferBytes, 1));
}

TEST_P(Offload, ALaterPutReplacesASmallerAndALargerOne) {
  auto store = open(3);
  for (const std::size_t size : {1U, 5U, 2U, 9U, 3U, 0U, 4U}) {
    const std::size_t bytes = size * kBufferBytes - (size > 0 ? 5 : 0);
    ASSERT_TRUE(store->put("t", tensor_bytes(bytes, size)));
    ASSERT_TRUE(store->put("u", tensor_bytes(3 * kBufferBytes, 100 + size)));
    EXPECT_EQ(got(*store, "t"), tensor_bytes(bytes, size)) << size;
    EXPECT_EQ(got(*store, "u"), tensor_bytes(3 * kBufferBytes, 100 + size));
  }
}

TEST_P(Offload, WhatWasUsedLastStaysInMemory) {
  auto store = open(3);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(store->put(name, tensor_bytes(kBufferBytes, 1)));
  ASSERT_TRUE(store->flush());
  got(*store, "a");
  ASSERT_TRUE(store->put("d", tensor_bytes(kBufferBytes, 2)));  // b goes
  ASSERT_TRUE(store->flush());
  const auto misses = [&](const std::string& name) {
    const auto before = store->statistics().misses;
    got(*store, name);
    return store->statistics().misses - before;
  };
  EXPECT_EQ(misses("a"), 0U);
  EXPECT_EQ(misses("c"), 0U);
  EXPECT_EQ(misses("d"), 0U);
  EXPECT_EQ(misses("b"), 1U);
  EXPECT_EQ(store->statistics().miss_bytes, kBufferBytes);
}

TEST_P(Offload, WhatWasReadAheadIsAHitAndStaysUntilItIsHad) {
  auto store = open(4);
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_TRUE(store->put(name, tensor_bytes(kBufferBytes, static_cast<std::uint64_t>(name[0]))));
  }
  ASSERT_TRUE(store->flush());
  ASSERT_TRUE(store->prefetch("a"));
  ASSERT_TRUE(store->flush());  // which also waits for reads
  for (const char* name : {"c", "d", "e", "f", "b", "c"}) got(*store, name);
  const auto before = store->statistics();
  EXPECT_EQ(got(*store, "a"), tensor_bytes(kBufferBytes, 'a'));
  const auto after = store->statistics();
  EXPECT_EQ(after.hits - before.hits, 1U);
  EXPECT_EQ(after.read_bytes, before.read_bytes);
}

TEST_P(Offload, PrefetchesOfMoreThanMemoryHoldDoNotBlockAnything) {
  auto store = open(4);
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(store->put("t" + std::to_string(i), tensor_bytes(2 * kBufferBytes + 1, i)));
  }
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(store->prefetch("t" + std::to_string(i)));
  ASSERT_TRUE(store->put("new", tensor_bytes(4 * kBufferBytes, 50)));
  for (std::uint64_t i = 8; i-- > 0;) {
    EXPECT_EQ(got(*store, "t" + std::to_string(i)), tensor_bytes(2 * kBufferBytes + 1, i));
  }
  EXPECT_EQ(got(*store, "new"), tensor_bytes(4 * kBufferBytes, 50));
  EXPECT_EQ(store->statistics().peak_memory_bytes, 4 * kBufferBytes);
}

TEST_P(Offload, APrefetchThatFoundNoBufferGoesOnWhenAGetHasFreedOne) {
  auto store = open(2);
  for (const char* name : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(store->put(name, tensor_bytes(kBufferBytes, 1)));
  ASSERT_TRUE(store->flush());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(store->prefetch(name));  // c waits: there are two buffers
  ASSERT_TRUE(store->flush());
  const auto before = store->statistics().read_bytes;
  got(*store, "a");  // its buffer is free again; nothing else is asked of the store until c was read
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->statistics().read_bytes - before, kBufferBytes);
}

TEST_P(Offload, ATensorLargerThanMemoryIsReadOnceEvenSo) {
  auto store = open(3);
  ASSERT_TRUE(store->put("large", tensor_bytes(30 * kBufferBytes, 3)));
  ASSERT_TRUE(store->flush());
  ASSERT_TRUE(store->put("fills memory", tensor_bytes(3 * kBufferBytes, 4)));
  const auto before = store->statistics().read_bytes;
  EXPECT_EQ(got(*store, "large"), tensor_bytes(30 * kBufferBytes, 3));
  EXPECT_EQ(store->statistics().read_bytes - before, 30 * kBufferBytes);
}

TEST_P(Offload, WhatIsRemovedIsGoneAndItsNameIsFree) {
  auto store = open(3);
  ASSERT_TRUE(store->put("t", tensor_bytes(2 * kBufferBytes, 1)));
  ASSERT_TRUE(store->remove("t"));
  std::vector<std::byte> out(2 * kBufferBytes);
  EXPECT_EQ(store->get("t", out).error().code, Errc::not_found);
  EXPECT_EQ(store->prefetch("t").error().code, Errc::not_found);
  EXPECT_EQ(store->remove("t").error().code, Errc::not_found);
  EXPECT_FALSE(store->size_of("t"));
  ASSERT_TRUE(store->put("t", tensor_bytes(3 * kBufferBytes, 2)));
  EXPECT_EQ(got(*store, "t"), tensor_bytes(3 * kBufferBytes, 2));
}

TEST_P(Offload, ASpanOfAnotherSizeIsRefused) {
  auto store = open(3);
  ASSERT_TRUE(store->put("t", tensor_bytes(100, 1)));
  std::vector<std::byte> out(99);
  EXPECT_EQ(store->get("t", out).error().code, Errc::usage);
}

TEST_P(Offload, NamesThatAreNoFileNamesLeaveNothingBehind) {
  const std::vector<std::string> names = {
      "", "..", "a/../../b", "a/b", std::string("nul\0here", 8), std::string(5000, 'x'), "A", "a", "\xff\xfe", "\n"};
  {
    auto store = open(2);
    for (std::size_t i = 0; i < names.size(); ++i) {
      ASSERT_TRUE(store->put(names[i], tensor_bytes(kBufferBytes + 1, i)));
    }
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(got(*store, names[i]), tensor_bytes(kBufferBytes + 1, i));
    EXPECT_EQ(store->statistics().write_failures, 0U);
  }
  if (directory_ == "/swap") return;  // each Io of that kind is a disk of its own
  auto io = GetParam().open();
  EXPECT_TRUE((*io)->list(directory_)->empty());
  EXPECT_EQ((*io)->list(files_.path())->size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Every, Offload, testing::ValuesIn(io_subjects()),
                         [](const auto& each) { return each.param.name; });

TEST(OffloadDirectory, IsOfOneStoreAndSweptOfWhatAKilledOneLeft) {
  MemoryDisk disk;
  disk.put("/swap/00000001-old.ckpt-swap", "left");
  const std::vector<std::string> others = {"my.ckpt-swap", "0000001-short.ckpt-swap", "0000000g-odd.ckpt-swap",
                                           "00000001.ckpt-swap", ".ckpt-swap"};
  for (const std::string& name : others) disk.put("/swap/" + name, "mine");
  disk.put("/swap/notes.txt", "mine");
  auto store = OffloadStore::open(on_disk(disk), small_store(2, "/swap"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(disk.text("/swap/00000001-old.ckpt-swap"), "(none)");
  for (const std::string& name : others) EXPECT_EQ(disk.text("/swap/" + name), "mine") << name;
  EXPECT_EQ(disk.text("/swap/notes.txt"), "mine");
  auto second = OffloadStore::open(on_disk(disk), small_store(2, "/swap"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::locked);
}

TEST(OffloadDirectory, ThatCannotBeMadeIsToldAtOpen) {
  const MemoryDisk disk;
  auto store = OffloadStore::open(on_disk(disk), small_store(2, "/no/such/parent"));
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::not_found);
}

TEST(OffloadThread, ThatRunsOutOfMemoryFailsTheOpenNotTheProgram) {
  const IoFactory throws = []() -> Result<std::unique_ptr<Io>> { throw std::bad_alloc(); };
  const auto store = OffloadStore::open(throws, small_store(2, "/swap"));
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::memory);
}

TEST(OffloadOptions, ThatMakeNoSenseAreRefused) {
  const MemoryDisk disk;
  const auto code = [&](OffloadStore::Options options) {
    auto store = OffloadStore::open(on_disk(disk), options);
    return store ? Errc::differs : store.error().code;
  };
  EXPECT_EQ(code({.directory = "/s", .memory_bytes = kBufferBytes, .buffer_bytes = kBufferBytes}), Errc::usage);
  EXPECT_EQ(code({.directory = "/s", .memory_bytes = 1 << 20, .buffer_bytes = 5000}), Errc::usage);
  EXPECT_EQ(code({.directory = "/s", .memory_bytes = 1 << 20, .buffer_bytes = 0}), Errc::usage);
  EXPECT_EQ(code({.directory = "/s", .memory_bytes = 1 << 20, .buffer_bytes = 8192, .block_bytes = 1}), Errc::usage);
  EXPECT_EQ(code({.directory = "/s", .memory_bytes = 1 << 20, .buffer_bytes = 8192, .queue_depth = 0}), Errc::usage);
}

TEST(OffloadFiles, MoreThanMayBeOpenAtOnceAreOpenedAgain) {
  const MemoryDisk disk;
  auto store = *OffloadStore::open(on_disk(disk), small_store(2, "/swap"));
  for (std::uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(store->put(std::to_string(i), tensor_bytes(100, i)));
  ASSERT_TRUE(store->flush());
  for (std::uint64_t i = 0; i < 600; ++i) ASSERT_EQ(got(*store, std::to_string(i)), tensor_bytes(100, i)) << i;
}

}  // namespace
}  // namespace ckpt
