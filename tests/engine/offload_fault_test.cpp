// The offload store on a disk that fails: nothing is lost in silence, whatever operation fails and however.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/offload_tensors.hpp"

namespace ckpt {
namespace {

TEST(OffloadFault, AFailedWriteIsToldByTheNextPutAndTheTensorIsStillThere) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"write"});
  auto store = *OffloadStore::open(failing(disk, plan), small_store(4, "/swap"));
  plan->fail_once(0, Errc::io);
  ASSERT_TRUE(store->put("a", tensor_bytes(kBufferBytes, 1)));
  while (store->statistics().write_failures == 0) std::this_thread::yield();

  auto told = store->put("b", tensor_bytes(kBufferBytes, 2));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Errc::io);
  EXPECT_EQ(told.error().tensor, "a");
  EXPECT_FALSE(store->size_of("b"));  // nothing was put
  EXPECT_TRUE(store->put("b", tensor_bytes(kBufferBytes, 2)));
  EXPECT_EQ(got(*store, "a"), tensor_bytes(kBufferBytes, 1));

  EXPECT_TRUE(store->flush());  // a second try went well
  ASSERT_TRUE(store->put("c", tensor_bytes(4 * kBufferBytes, 3)));
  EXPECT_EQ(got(*store, "a"), tensor_bytes(kBufferBytes, 1));  // read back
}

TEST(OffloadFault, FlushTellsOfWhatIsNotOnDisk) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"write"});
  auto store = *OffloadStore::open(failing(disk, plan), small_store(4, "/swap"));
  plan->fail_from(0, Errc::no_space);
  ASSERT_TRUE(store->put("a", tensor_bytes(kBufferBytes, 1)));
  for (int again = 0; again < 2; ++again) {
    auto flushed = store->flush();
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Errc::no_space);
    EXPECT_EQ(flushed.error().tensor, "a");
  }
  plan->clear();
  EXPECT_TRUE(store->flush());
}

TEST(OffloadFault, OnAFullDiskPutFailsOnceMemoryIsFullAndEverythingPutIsStillHad) {
  const MemoryDisk disk({.capacity_bytes = 10 * kBufferBytes});
  auto store = *OffloadStore::open(on_disk(disk), small_store(4, "/swap"));
  std::map<std::string, std::uint64_t> stored;
  unsigned refused = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::string name = "t" + std::to_string(i);
    auto put = store->put(name, tensor_bytes(kBufferBytes, i));
    if (put) {
      stored[name] = i;
    } else {
      EXPECT_EQ(put.error().code, Errc::no_space);
      ++refused;
    }
  }
  EXPECT_GE(stored.size(), 13U);  // the disk's, and nearly all of the memory's
  EXPECT_GT(refused, 20U);
  for (const auto& [name, seed] : stored) EXPECT_EQ(got(*store, name), tensor_bytes(kBufferBytes, seed)) << name;

  // A put that fails leaves the earlier value.
  const auto [kept, seed] = *stored.begin();
  ASSERT_FALSE(store->put(kept, tensor_bytes(4 * kBufferBytes, 99)));
  EXPECT_EQ(got(*store, kept), tensor_bytes(kBufferBytes, seed));

  // Room again: all goes well from here.
  while (stored.size() > 3) {
    ASSERT_TRUE(store->remove(stored.begin()->first));
    stored.erase(stored.begin());
  }
  EXPECT_TRUE(store->flush());
  EXPECT_TRUE(store->put("late", tensor_bytes(3 * kBufferBytes, 7)));
  EXPECT_TRUE(store->flush());
  for (const auto& [name, s] : stored) EXPECT_EQ(got(*store, name), tensor_bytes(kBufferBytes, s)) << name;
}

TEST(OffloadFault, AReadThatFailsIsToldByGetAndMayBeTriedAgain) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  auto store = *OffloadStore::open(failing(disk, plan), small_store(2, "/swap"));
  ASSERT_TRUE(store->put("a", tensor_bytes(kBufferBytes + 9, 1)));
  ASSERT_TRUE(store->put("b", tensor_bytes(2 * kBufferBytes, 2)));
  for (const bool ahead : {false, true}) {
    plan->fail_from(0, Errc::io);
    if (ahead) {
      ASSERT_TRUE(store->prefetch("a"));
    }
    std::vector<std::byte> out(kBufferBytes + 9);
    auto had = store->get("a", out);
    ASSERT_FALSE(had);
    EXPECT_EQ(had.error().code, Errc::io);
    EXPECT_EQ(had.error().tensor, "a");
    plan->clear();
    EXPECT_EQ(got(*store, "a"), tensor_bytes(kBufferBytes + 9, 1));
    EXPECT_EQ(got(*store, "b"), tensor_bytes(2 * kBufferBytes, 2));
  }
}

TEST(OffloadFault, AFileThatWasCutShortIsCorrupt) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  auto store = *OffloadStore::open(failing(disk, plan), small_store(2, "/swap"));
  ASSERT_TRUE(store->put("a", tensor_bytes(kBufferBytes, 1)));
  ASSERT_TRUE(store->put("b", tensor_bytes(2 * kBufferBytes, 2)));
  plan->tear_once(0, Errc::io);
  std::vector<std::byte> out(kBufferBytes);
  auto had = store->get("a", out);
  ASSERT_FALSE(had);
  EXPECT_EQ(had.error().code, Errc::corrupt);
}

TEST(OffloadFault, MoreThanMemoryThatCannotBeWrittenIsGoneAndSaysSo) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"write"});
  auto store = *OffloadStore::open(failing(disk, plan), small_store(2, "/swap"));
  ASSERT_TRUE(store->put("a", tensor_bytes(kBufferBytes, 1)));
  ASSERT_TRUE(store->flush());
  plan->fail_from(0, Errc::no_space);
  auto put = store->put("a", tensor_bytes(5 * kBufferBytes, 2));
  ASSERT_FALSE(put);
  EXPECT_NE(put.error().message.find("nothing is stored"), std::string::npos) << put.error().message;
  EXPECT_FALSE(store->size_of("a"));
  plan->clear();
  EXPECT_TRUE(store->put("a", tensor_bytes(5 * kBufferBytes, 3)));
  EXPECT_EQ(got(*store, "a"), tensor_bytes(5 * kBufferBytes, 3));
}

TEST(OffloadFault, ACloseThatFailsIsToldAndOnlyThatTensorIsLost) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"close"});
  plan->fail_once(3, Errc::io);
  auto store = *OffloadStore::open(failing(disk, plan), small_store(2, "/swap"));
  std::string told;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string name = std::to_string(i);
    auto put = store->put(name, tensor_bytes(100, i));
    if (put) continue;
    EXPECT_EQ(told, "");
    told = put.error().tensor;
    EXPECT_TRUE(store->put(name, tensor_bytes(100, i)));
  }
  EXPECT_EQ(told, "3");  // the one whose file was the longest unused, after three others
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::vector<std::byte> out(100);
    const auto had = store->get(std::to_string(i), out);
    EXPECT_EQ(had.has_value(), std::to_string(i) != told) << i;
    if (had) {
      EXPECT_EQ(out, tensor_bytes(100, i)) << i;
    }
  }
  EXPECT_FALSE(store->flush());
  EXPECT_TRUE(store->put(told, tensor_bytes(100, 3)));
  EXPECT_TRUE(store->flush());
}

TEST(OffloadFault, AQueueThatBreaksIsToldByEveryCallAndWhatIsInMemoryIsStillHad) {
  const MemoryDisk disk;
  auto plan = std::make_shared<FaultPlan>();
  auto store = *OffloadStore::open(failing(disk, plan), small_store(4, "/swap"));
  ASSERT_TRUE(store->put("gone", tensor_bytes(4 * kBufferBytes, 1)));
  ASSERT_TRUE(store->put("here", tensor_bytes(3 * kBufferBytes, 2)));
  ASSERT_TRUE(store->flush());
  plan->break_queues();
  ASSERT_TRUE(store->put("last", tensor_bytes(kBufferBytes, 3)));
  auto flushed = store->flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, Errc::io);
  EXPECT_FALSE(store->put("more", tensor_bytes(kBufferBytes, 4)));
  EXPECT_EQ(got(*store, "here"), tensor_bytes(3 * kBufferBytes, 2));
  EXPECT_EQ(got(*store, "last"), tensor_bytes(kBufferBytes, 3));
  std::vector<std::byte> out(4 * kBufferBytes);
  EXPECT_FALSE(store->get("gone", out));
  EXPECT_TRUE(store->remove("here"));
}

/// Every tensor of which put said that it is stored is had as it was put, or get says why not.
TEST(OffloadFault, AFailureOfAnyOperationIsToldAndNoWrongByteIsHad) {
  enum class Effect : std::uint8_t { once, lasting, answer_lost, torn };
  for (const Effect effect : {Effect::once, Effect::lasting, Effect::answer_lost, Effect::torn}) {
    bool reached_the_end = false;
    for (std::uint64_t n = 0; !reached_the_end; ++n) {
      ASSERT_LT(n, 2000U);
      const MemoryDisk disk;
      auto plan = std::make_shared<FaultPlan>();
      if (effect == Effect::once) plan->fail_once(n, Errc::io);
      if (effect == Effect::lasting) plan->fail_from(n, Errc::io);
      if (effect == Effect::answer_lost) plan->fail_once(n, Errc::io, true);
      if (effect == Effect::torn) plan->tear_once(n, Errc::io);
      std::map<std::string, std::uint64_t> stored;
      unsigned told = 0;
      {
        auto opened = OffloadStore::open(failing(disk, plan), small_store(3, "/swap"));
        if (!opened) continue;
        OffloadStore& store = **opened;
        const auto put = [&](const std::string& name, std::size_t bytes, std::uint64_t seed) {
          if (store.put(name, tensor_bytes(bytes, seed))) {
            stored[name] = seed;
          } else {
            ++told;
            if (!store.size_of(name)) stored.erase(name);
          }
        };
        put("a", 2 * kBufferBytes, 1);
        put("b", kBufferBytes + 3, 2);
        put("c", 5 * kBufferBytes, 3);
        put("a", 2 * kBufferBytes, 4);
        static_cast<void>(store.prefetch("b"));
        put("d", 100, 5);
        if (stored.erase("b") > 0) {
          EXPECT_TRUE(store.remove("b"));
        }
        const std::string before_flush = plan->first_failed();
        if (!store.flush()) ++told;
        for (const auto& [name, seed] : stored) {
          std::vector<std::byte> out(*store.size_of(name));
          if (store.get(name, out)) {
            EXPECT_EQ(out, tensor_bytes(out.size(), seed)) << name << ", operation " << n;
          } else {
            ++told;
          }
        }
        reached_the_end = plan->first_failed().empty();
        if (effect == Effect::lasting && !before_flush.empty()) {
          EXPECT_GT(told, 0U) << before_flush << ", operation " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ckpt
