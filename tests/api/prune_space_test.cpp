// What waits in recycle/ for the next save while a policy wants space: given up first, and before a rule is broken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "api/catalog/prune.hpp"
#include "catalog/store_builder.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

using catalog::Time;

const Time kNow{std::chrono::sys_days{std::chrono::year{2026} / 2 / 1}};
constexpr std::uint64_t kData = 40960;  // of what goes

/// Steps 1 to 4 on a disk in memory, the first two of them with data; 1 feeds the next save, 2 to 4 stand.
class PruneSpace : public testing::Test {
 protected:
  PruneSpace() : comm_(Comm::solo()), io_(disk_.io()) {
    for (const std::uint64_t step : {1U, 3U, 4U}) put(step);
    const PruneReport retired = pruned(2, "");
    EXPECT_EQ(retired.purged.recycled_bytes, kData);
    EXPECT_EQ(waiting(), kData);
    put(2);
  }
  void put(std::uint64_t step) {
    const std::string at = made_.put("r", step, step, {.weights_bytes = step <= 2 ? kData : 0, .optim_bytes = 0});
    for (const char* file : {"manifest.json", "sums.bin"})
      disk_.put(path(step) + "/" + file, test::read_file(at + "/" + file));
    disk_.put(path(step) + "/index/manifest.json", test::read_file(at + "/manifest.json"));
    if (step <= 2) disk_.put(path(step) + "/shards/weights/00000-00000.safetensors", std::string(kData, 'x'));
  }
  static std::string path(std::uint64_t step) {
    return "/s/r/" + CheckpointName{.step = step, .generation = step}.text();
  }
  bool is_there(std::uint64_t step) const { return disk_.text(path(step) + "/manifest.json") != "(none)"; }
  std::uint64_t waiting() { return catalog::measure_recycled(*io_, "/s")->bytes; }
  std::uint64_t free_bytes() { return *io_->free_bytes("/s"); }
  static std::string min_free(std::uint64_t bytes) { return fmt::format("min_free = \"{} B\"\n", bytes); }

  /// A prune --apply that keeps the last so many, under such pressure.
  PruneReport pruned(std::uint64_t last, const std::string& pressure, std::uint64_t recycle = 1) {
    std::string text = fmt::format("keep = [{{ id = \"last\", last = {} }}]\n", last);
    text += fmt::format("[trash]\nrecycle = {}\npurge_early_when_free_below = \"0%\"\n", recycle);
    if (!pressure.empty()) text += "[pressure]\n" + pressure;
    disk_.put("/s/ckpt.toml", text);
    Session session{.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    const auto plan = plan_prune(session, {.store = "/s", .approved = true, .carries_out = true, .now = now_});
    EXPECT_TRUE(plan) << plan.error().message;
    if (!plan) return {};
    auto report = carry_out(session, *plan, {.now = now_, .by = "test"});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *std::move(report) : PruneReport{};
  }

  test::StoreBuilder made_{};
  MemoryDisk disk_{{.capacity_bytes = 1 << 20}};
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<Io> io_;
  Time now_ = kNow;
};

TEST_F(PruneSpace, WithEnoughSpaceWhatWaitsGoesOnWaiting) {
  const PruneReport report = pruned(3, min_free(free_bytes() - kData));
  EXPECT_EQ(report.purged.emptied_bytes, 0U);
  EXPECT_EQ(waiting(), kData);
}

TEST_F(PruneSpace, WhatMinFreeWantsIsTakenFromItBeforeARuleIsBroken) {
  const PruneReport report = pruned(3, min_free(free_bytes() + kData / 2));
  EXPECT_EQ(report.purged.emptied_bytes, kData);
  EXPECT_EQ(waiting(), 0U);
  EXPECT_EQ(report.trashed, 0U);
  EXPECT_TRUE(is_there(2));
}

TEST_F(PruneSpace, WhatHeadroomWantsToo) {
  constexpr std::uint64_t kNewest = 600 << 10;  // as its manifest says; nothing goes, so nobody looks at it
  const std::string at = made_.put("r", 5, 5, {.weights_bytes = kNewest, .optim_bytes = 0});
  for (const char* file : {"manifest.json", "sums.bin"})
    disk_.put(path(5) + "/" + file, test::read_file(at + "/" + file));
  const double times = static_cast<double>(free_bytes() + kData / 2) / static_cast<double>(kNewest);
  const PruneReport report = pruned(4, fmt::format("headroom = \"{:.4f} x last_size\"\n", times));
  EXPECT_EQ(report.trashed, 0U);
  EXPECT_EQ(report.purged.emptied_bytes, kData);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(PruneSpace, MoreThanItHoldsBreaksRulesAndNothingIsPutThere) {
  const PruneReport report = pruned(3, min_free(free_bytes() + kData + kData / 2));
  EXPECT_EQ(report.purged.emptied_bytes, kData);
  EXPECT_EQ(waiting(), 0U);
  EXPECT_EQ(report.trashed, 1U);
  EXPECT_EQ(report.trashed_wait.count, 1U) << "it waits for its grace";
  EXPECT_FALSE(is_there(2));
}

TEST_F(PruneSpace, WhatGoesIntoTheTrashNowIsNoSpaceYet) {
  const PruneReport report = pruned(2, min_free(free_bytes() + kData / 2));
  EXPECT_EQ(report.trashed, 1U);
  EXPECT_EQ(report.trashed_wait.count, 1U);
  EXPECT_EQ(report.purged.recycled_count, 0U);
  EXPECT_EQ(report.purged.emptied_bytes, kData);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(PruneSpace, WhatTheTrashPromisedBeforeCountsAsSpace) {
  // 2 goes into the trash for its grace, as nothing is to be recycled; what waited is unlinked.
  EXPECT_EQ(pruned(2, "", 0).trashed_wait.count, 1U);
  EXPECT_EQ(waiting(), 0U);
  const std::string file = "1700000000000-00000000000000ab-12.40960";
  disk_.put("/s/.ckpt/recycle/" + file, std::string(kData, 'y'));
  PruneReport report = pruned(2, min_free(free_bytes() + kData / 2));
  EXPECT_EQ(report.purged.emptied_bytes, 0U) << "the pressure's own account is satisfied";
  EXPECT_EQ(waiting(), kData);
  report = pruned(2, min_free(free_bytes() + kData + kData / 2));
  EXPECT_EQ(report.purged.emptied_bytes, kData);
  EXPECT_TRUE(report.purged.gone.empty()) << "the trash keeps its promise";
}

TEST_F(PruneSpace, OnAFullDiskWhatIsDueGivesTheRoomForRecords) {
  EXPECT_EQ(pruned(2, "", 0).trashed_wait.count, 1U);
  now_ += std::chrono::hours(24 * 365);
  disk_.put("/s/other", std::string(free_bytes(), 'o'));
  const PruneReport report = pruned(1, "", 0);
  EXPECT_EQ(report.purged.gone.size(), 1U);
  EXPECT_EQ(report.trashed, 1U);
  EXPECT_TRUE(report.complete);
  EXPECT_GT(free_bytes(), kData / 2);
}

TEST_F(PruneSpace, WhatWaitsOrIsGivenAwayIsNotCountedAsInTheTrash) {
  const PruneReport report = pruned(1, "");
  EXPECT_EQ(report.trashed, 2U);  // 2 and 3
  EXPECT_EQ(report.trashed_wait.count, 1U);
  EXPECT_EQ(report.purged.gone.size(), 1U);
  const auto in_trash = catalog::measure_trash(*io_, "/s", "", kNow);
  ASSERT_TRUE(in_trash);
  EXPECT_EQ(in_trash->checkpoints, report.trashed_wait.count);
  EXPECT_EQ(in_trash->bytes, report.trashed_wait.bytes);
}

}  // namespace
}  // namespace ckpt
