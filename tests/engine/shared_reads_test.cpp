#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/run/run.hpp"
#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

constexpr std::uint64_t kElements = 9'000'000;  // of the master: 9 leaves, none of them aligned with a part
constexpr std::uint64_t kMasterBytes = 4 * kElements;

/// A master in three flat parts over two files, a weight that is derived from it, and a small tensor.
class SharedReads : public testing::Test {
 protected:
  SharedReads() {
    std::string files[2];
    files[0].assign(1000, 'h');
    files[1].assign(64, 'h');
    std::vector<float> values(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 4099) / 7.0f - 100.0f;
    map_.tensors = {{.name = "w", .dtype = Dtype::bf16, .shape = {3000, 3000}},
                    {.name = "s", .dtype = Dtype::u8, .shape = {777}},
                    {.name = "m", .dtype = Dtype::f32, .shape = {3000, 3000}, .role = Role::slot}};
    ChunkTable table(3);
    const Box whole = Box::whole({3000, 3000});
    const std::uint64_t cuts[] = {0, 2'500'001, 5'100'007, kElements};
    for (std::size_t part = 0; part < 3; ++part) {
      std::string& file = files[part % 2];
      const Locator where{.file = static_cast<std::uint32_t>(part % 2), .offset = file.size(), .dtype = Dtype::f32};
      for (const std::size_t tensor : {0u, 2u}) {
        table.add(tensor, {3000, 3000}, {whole, Extent{cuts[part], cuts[part + 1]}}, where);
      }
      file.append(reinterpret_cast<const char*>(&values[cuts[part]]), 4 * (cuts[part + 1] - cuts[part]));
    }
    table.add(1, {777}, {Box::whole({777}), {}}, {.file = 1, .offset = files[1].size(), .dtype = Dtype::u8});
    files[1].append(777, 's');
    table.seal();
    map_.index = std::make_shared<ChunkTable>(std::move(table));
    map_.files = {{.path = "a", .bytes = files[0].size()}, {.path = "b", .bytes = files[1].size()}};
    disk_.put("/source/a", std::move(files[0]));
    disk_.put("/source/b", std::move(files[1]));
  }

  /// The weight first, everything at odd places.
  static std::vector<TargetFile> target() {
    return {{.path = "out",
             .bytes = 1004 + 2 * kElements + 777 + 3 + kMasterBytes,
             .placements = {{.offset = 1004, .bytes = 2 * kElements, .tensor = 0, .dtype = Dtype::bf16},
                            {.offset = 1004 + 2 * kElements, .bytes = 777, .tensor = 1, .dtype = Dtype::u8},
                            {.offset = 1004 + 2 * kElements + 780, .bytes = kMasterBytes, .tensor = 2}}}};
  }

  struct Outcome {
    std::string bytes;
    std::vector<Hash128> leaves;
    std::uint64_t read = 0;
  };
  Outcome carry_out(bool derived, int ranks, unsigned workers, std::uint64_t buffers) {
    map_.derived = derived ? std::vector<Derived>{{.tensor = 0, .from = 2}} : std::vector<Derived>{};
    disk_.put("/target/out", "");
    Outcome outcome;
    std::mutex mutex;
    ThreadRanks(ranks).run([&](Comm& comm) {
      const auto plan = Plan::make(map_, target());
      const auto io = disk_.io();
      RunOptions options{.source_root = "/source", .target_root = "/target", .workers = workers};
      options.pool_bytes = smallest_pool_bytes(workers) / 2 * buffers;
      const auto report = run(*plan, *io, comm, options);
      EXPECT_TRUE(report) << (report ? "" : report.error().message);
      const std::lock_guard lock(mutex);
      outcome.read += report ? report->read_bytes : 0;
      if (report && comm.is_root()) outcome.leaves = report->leaves;
    });
    outcome.bytes = disk_.text("/target/out");
    return outcome;
  }

  Map map_;
  MemoryDisk disk_;
};

TEST_F(SharedReads, TwoTensorsOfTheSameBytesReadThemOnce) {
  const Outcome apart = carry_out(false, 1, 1, 24);
  const Outcome together = carry_out(true, 1, 1, 24);
  EXPECT_GT(apart.read, 2 * kMasterBytes);
  EXPECT_LT(together.read, kMasterBytes + kMasterBytes / 10);  // what did not fit the buffers is read again
}

TEST_F(SharedReads, TheFileAndItsHashesAreTheSameWhateverIsShared) {
  const Outcome apart = carry_out(false, 1, 1, 24);
  ASSERT_EQ(apart.bytes.size(), target()[0].bytes);
  for (const int ranks : {1, 3}) {
    for (const unsigned workers : {1u, 2u}) {
      for (const std::uint64_t buffers : {2u, 5u, 24u}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << workers << " workers, " << buffers << " buffers");
        const Outcome together = carry_out(true, ranks, workers, buffers);
        EXPECT_TRUE(together.bytes == apart.bytes);
        EXPECT_TRUE(together.leaves == apart.leaves);
      }
    }
  }
}

TEST_F(SharedReads, EveryLeafComesOnceInThePlansOrder) {
  map_.derived = {{.tensor = 0, .from = 2}};
  const auto plan = Plan::make(map_, target());
  ASSERT_TRUE(plan);
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < plan->totals().leaves; ++i) order.push_back(plan->leaf_at(i));
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (std::uint64_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace ckpt::test
