// Salvages of which one operation fails, or that lose power: the damaged checkpoint stays as it is, there is no new one
// or a whole one, and the same command again makes it.
#include "api/convert/salvage.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/one_checkpoint.hpp"

namespace ckpt::test {
namespace {

const std::string kOut = "/out/new";

class Salvage : public OneCheckpoint {
 protected:
  /// A checkpoint whose optimizer has a byte that is not what was saved, and whose manifest is lost.
  std::unique_ptr<MemoryDisk> damaged() {
    auto disk = std::make_unique<MemoryDisk>();
    disk->put("/out/none", "");
    const auto io = disk->io();
    root_ = save_one(*io, "/s/r", 7);
    const std::string shard = root_ + "/shards/optim/00000-00000.safetensors";
    std::string bytes = disk->text(shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    disk->put(shard, bytes);
    EXPECT_TRUE(io->unlink(root_ + "/manifest.json") && io->sync_dir(root_));
    source_ = files_of(*disk, root_);
    return disk;
  }

  Result<SalvageReport> salvaged(Io& io) {
    Session here = session(io);
    return salvage(here, {.path = root_, .out = kOut, .by = "test"});
  }
  /// "" where what is there is right, as far as it goes.
  std::string wrong(const MemoryDisk& disk, bool told) {
    if (files_of(disk, root_) != source_) return "the damaged one was changed";
    const bool there = disk.text(kOut + "/manifest.json") != "(none)";
    if (!there) return told ? "success without a result" : "";
    return damage_of(disk, kOut);
  }

  std::string root_{};
  Tree source_{};
};

TEST_F(Salvage, TakesWhatIsIntactByTheCopyOfTheManifest) {
  const auto disk = damaged();
  const auto io = disk->io();
  const auto report = salvaged(*io);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->by_copy);
  EXPECT_EQ(report->lost, std::vector<std::string>{"optimizer.state.p.exp_avg"});
  EXPECT_EQ(wrong(*disk, true), "");
}

TEST_F(Salvage, AnyOperationThatFailsOnceLeavesNoTargetOrAWholeOne) {
  std::size_t failed = 0;
  for (const bool carried_out : {false, true}) {
    for (std::uint64_t n = 0;; ++n) {
      ASSERT_LT(n, 1000U);
      const auto disk = damaged();
      const auto plan = std::make_shared<FaultPlan>();
      plan->fail_once(n, Errc::io, carried_out);
      const auto report = salvaged(*make_fault_io(disk->io(), plan));
      if (plan->first_failed().empty()) break;
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      ++failed;
      ASSERT_EQ(wrong(*disk, report.has_value()), "");
      if (report) {
        ASSERT_EQ(report->lost.size(), 1U) << "read as damaged";
      } else {
        ASSERT_FALSE(report.error().message.empty());
        ASSERT_NE(report.error().code, Errc::internal) << report.error().message;
      }
      if (disk->text(kOut + "/manifest.json") != "(none)") continue;
      const auto io = disk->io();
      const auto again = salvaged(*io);
      ASSERT_TRUE(again) << again.error().message;
      ASSERT_EQ(wrong(*disk, true), "");
      expect_no_partials(*disk);
    }
  }
  EXPECT_GT(failed, 100U);
}

TEST_F(Salvage, PowerLossAtAnyOperationLeavesNoTargetOrAWholeOne) {
  for (const std::size_t spared : {std::size_t{0}, MemoryDisk::kAllNames}) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 1000U);
      const auto disk = damaged();
      const auto plan = std::make_shared<FaultPlan>();
      plan->fail_from(n, Errc::io);
      const bool told = salvaged(*make_fault_io(disk->io(), plan)).has_value();
      done = plan->first_failed().empty();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      disk->power_off({.name_operations = spared});
      ASSERT_EQ(wrong(*disk, told), "");
    }
  }
}

}  // namespace
}  // namespace ckpt::test
