// What a trainer reads, while it is replaced or written to.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "api/run/checkpoint.hpp"
#include "changed_source.hpp"
#include "engine/run/run.hpp"
#include "support/fault_io.hpp"

namespace ckpt::test {
namespace {

Result<Values> load_both(Io& io, BufferPool& pool) {
  CKPT_TRY(const auto checkpoint, Checkpoint::open(io, "/source"));
  std::vector<std::byte> emb(kTensorBytes);
  std::vector<std::byte> head(kTensorBytes);
  const std::array<NamedRead, 2> reads{{{.name = "emb", .out = emb.data(), .bytes = emb.size()},
                                        {.name = "head", .out = head.data(), .bytes = head.size()}}};
  CKPT_TRY(const auto report, checkpoint->read(reads, io, pool, {}));
  EXPECT_EQ(emb, std::vector<std::byte>(kTensorBytes, emb.front()));
  EXPECT_EQ(head, std::vector<std::byte>(kTensorBytes, head.front()));
  return Values{{"emb", static_cast<int>(emb.front())}, {"head", static_cast<int>(head.front())}};
}

class ChangedLoad : public testing::TestWithParam<Change> {};

TEST_P(ChangedLoad, IsOldOrNewOrRefused) {
  const auto pool = BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = 4});
  ASSERT_TRUE(pool);
  std::size_t refused = 0;
  std::uint64_t operations = 1;
  for (std::uint64_t n = 0; n < operations; ++n) {
    MemoryDisk disk;
    kOld.put(disk, "/source");
    const auto plan = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), plan);
    plan->call_at(n, [&] { GetParam().carry_out(disk); });
    const auto seen = load_both(*io, **pool);
    operations = std::max(operations, plan->operation_count());  // a refused one ends early
    if (seen) {
      EXPECT_TRUE(*seen == kOld.values() || *seen == GetParam().after.values()) << "operation " << n << ": a mixture";
    } else {
      ++refused;
      EXPECT_EQ(seen.error().code, Errc::changed) << "operation " << n << ": " << seen.error().message;
    }
  }
  EXPECT_GT(refused, 3U);
}

INSTANTIATE_TEST_SUITE_P(Changes, ChangedLoad, testing::ValuesIn(kChanges),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace ckpt::test
