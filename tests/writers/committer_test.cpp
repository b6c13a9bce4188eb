// What a leader's disk does for a commit, without other ranks.
#include "writers/committer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/memory_io.hpp"
#include "writers/save_record.hpp"

namespace ckpt::test {
namespace {

class CommitterTest : public testing::Test {
 protected:
  void SetUp() override {
    disk.put("/run/.keep", "");
    auto opened = BufferPool::open({.buffer_bytes = std::size_t{4} << 20, .buffer_count = 1});
    ASSERT_TRUE(opened);
    pool = std::move(*opened);
    flusher.emplace(disk.io(), *pool, Flusher::Options{});
  }
  Committer committer(std::unique_ptr<Io> io, std::uint64_t least_generation = 0) {
    return {
        std::move(io), *flusher, {.home = "/run", .least_generation = [least_generation] { return least_generation; }}};
  }
  static std::shared_ptr<SaveJob> job() {
    auto save = std::make_shared<SaveJob>(Hash128{.bytes = {1}});
    save->step = 5;
    save->manifest.id = save->id();
    save->manifest.created = "2026-01-02T03:04:05.000000000Z";
    save->manifest.generator = "test";
    save->manifest.meta.step = 5;
    save->manifest.meta.world_size = 1;
    save->manifest.layouts = {{.kind = universal::Layout::Kind::irregular}};
    return save;
  }
  bool has(const std::string& part) const {
    const auto tree = disk.tree();
    return std::any_of(tree.begin(), tree.end(), [&](const auto& path) { return path.find(part) != path.npos; });
  }

  MemoryDisk disk{};
  std::unique_ptr<BufferPool> pool{};
  std::optional<Flusher> flusher{};
};

TEST_F(CommitterTest, PublishesAboveTheGenerationsOfTheOtherTier) {
  const auto save = job();
  Committer leader = committer(disk.io(), 7);
  ASSERT_TRUE(leader.begin(*save));
  EXPECT_TRUE(has(save->root));
  leader.publish(save, {to_text(RankRecord{})});
  leader.wait();
  ASSERT_TRUE(save->published());
  ASSERT_TRUE(save->publishing()) << save->publishing().error().message;
  EXPECT_EQ(*save->publishing(), "step-000000005.g7");
  EXPECT_FALSE(has("partial"));
  EXPECT_TRUE(has("/run/step-000000005.g7/manifest.json"));

  const auto found = leader.find(*save);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "step-000000005.g7");
  leader.take_back(save);
  leader.finish();
  EXPECT_FALSE(has("step-000000005"));
}

TEST_F(CommitterTest, AFailedPublicationIsTheOutcomeAndItsPartialIsGone) {
  const auto save = job();
  Committer leader = committer(disk.io());
  ASSERT_TRUE(leader.begin(*save));
  leader.publish(save, {"no record"});
  leader.wait();
  ASSERT_TRUE(save->published());
  ASSERT_FALSE(save->publishing());
  EXPECT_EQ(save->publishing().error().code, Errc::internal);
  EXPECT_FALSE(has("partial"));
}

TEST_F(CommitterTest, DropsAPartialWhenTheRankHasStoppedWriting) {
  const auto save = job();
  Committer leader = committer(disk.io());
  ASSERT_TRUE(leader.begin(*save));
  std::atomic<bool> stopped{false};
  flusher->after([&] {
    while (!stopped) std::this_thread::yield();  // it is still at work on this save
  });
  leader.drop(save);
  leader.wait();
  EXPECT_TRUE(has("partial"));
  stopped = true;
  flusher->finish();
  leader.wait();
  EXPECT_FALSE(has("partial"));
}

TEST_F(CommitterTest, ARankThatDoesNotLeadCanLookButHasNothingToDrop) {
  const auto save = job();
  Committer other = committer(nullptr);
  other.drop(save);
  other.drop_unused(save);
  const auto found = other.find(*save);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_FALSE(*found);
}

}  // namespace
}  // namespace ckpt::test
