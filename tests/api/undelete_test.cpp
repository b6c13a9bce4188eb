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

TEST(Undelete, ANameMayGiveTheGenerationOfASave) {
  const auto is_named = [](std::string_view name) {
    return names_checkpoint(name, "a/b", "step-000000007.g3", 7, "0123456789abcdef");
  };
  for (const char* name : {"a/b@7", "a/b@7.g3", "a/b@step-000000007.g3", "a/b/step-000000007.g3", "012345"})
    EXPECT_TRUE(is_named(name)) << name;
  for (const char* name : {"a/b@7.g4", "a/b@07.g3", "b@7.g3", "a/b@8", "01234", "a/b"})
    EXPECT_FALSE(is_named(name)) << name;
}

TEST(Undelete, OfATimeAndOfARunEverythingComesBackOnce) {
  MemoryDisk disk;
  const auto put = [&](const std::string& run, const std::string& name, std::uint64_t step, Time deleted) {
    const std::string path = "/s/.ckpt/trash/" + run + "/" + name;
    disk.put(path + "/manifest.json", "whole");
    disk.put(path + ".json",
             catalog::record_text({.step = step, .deleted = deleted, .purge_at = deleted + std::chrono::hours(2)}));
  };
  put("a", "step-000000001.g1", 1, at(1));
  put("a", "step-000000002.g2", 2, at(5));
  put("b", "step-000000001.g1", 1, at(5));
  const auto io = disk.io();
  const auto late = undelete(*io, {.store = "/s", .names = {"a", "a@2"}, .since = at(5), .now = at(6), .by = "ana"});
  ASSERT_TRUE(late) << late.error().message;
  ASSERT_EQ(late->restored.size(), 1U);
  EXPECT_EQ(late->restored[0].name, "step-000000002.g2");
  EXPECT_EQ(catalog::undeleted_until(late->restored[0].record), at(8)) << "as long as its grace was";
  const auto rest = undelete(*io, {.store = "/s", .all = true, .now = at(7), .by = "ana"});
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(rest->restored.size(), 2U);
  const auto none = undelete(*io, {.store = "/s", .all = true, .now = at(7), .by = "ana"});
  ASSERT_TRUE(none && none->restored.empty() && none->refused.empty());
}

}  // namespace
}  // namespace ckpt
