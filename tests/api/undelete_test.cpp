// Which of several things in the trash a name means.
#include "api/catalog/undelete.hpp"

#include <gtest/gtest.h>

#include "support/memory_io.hpp"

namespace ckpt {
namespace {

using catalog::Time;
using catalog::TrashRecord;

Time at(std::int64_t hours) {
  return Time(std::chrono::hours(480'000 + hours));
}

TEST(Undelete, ACheckpointComesBackBeforeItsOptimizerWhateverTheClockSaid) {
  const std::string trash = "/s/.ckpt/trash/r/step-000000007.g3";
  MemoryDisk disk;
  disk.put(trash + "/manifest.json", "whole");
  disk.put(trash + ".json", catalog::record_text({.step = 7, .deleted = at(5)}));
  disk.put(trash + ".optim/shard", "optimizer");  // dropped before, by a clock that was ahead
  disk.put(trash + ".optim.json", catalog::record_text({.step = 7, .dropped = "optim", .deleted = at(10)}));
  const auto io = disk.io();
  const auto back = undelete(*io, {.store = "/s", .names = {"r@7"}, .now = at(11), .by = "ana"});
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->restored.size(), 1U);
  EXPECT_EQ(disk.text("/s/r/step-000000007.g3/manifest.json"), "whole");
}

}  // namespace
}  // namespace ckpt
