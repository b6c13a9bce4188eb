// A scrub while others delete, and with every operation failing once.
#include "api/catalog/scrub.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "api/catalog/store_catalog.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/store_builder.hpp"
#include "support/fault_io.hpp"

namespace ckpt {
namespace {

using catalog::Mark;
using catalog::Time;

const Time kNow{std::chrono::sys_days{std::chrono::year{2026} / 2 / 1}};

class Scrub : public testing::Test {
 protected:
  Scrub() : comm_(Comm::solo()) {
    for (std::uint64_t step = 1; step <= 3; ++step) store_.put("r", step, step, {.weights_bytes = 0, .optim_bytes = 0});
  }
  std::string path(std::uint64_t step) const {
    return store_.path() + "/r/" + CheckpointName{.step = step, .generation = step}.text();
  }
  Result<ScrubReport> scrubbed(Io& io, const std::function<void(const ScrubItem&)>& each = {}) {
    Session session{.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    return scrub(session, {.store = store_.path(), .by = "test", .clock = [] { return kNow; }}, each);
  }
  std::unique_ptr<Io> io() {
    auto io = open_io(IoKind::threads);
    EXPECT_TRUE(io);
    return io ? *std::move(io) : nullptr;
  }

  test::StoreBuilder store_{};
  std::unique_ptr<Comm> comm_;
};

TEST_F(Scrub, WhatIsDeletedMeanwhileIsNoFailure) {
  const auto report = scrubbed(store_.io(), [&](const ScrubItem& item) {
    if (item.entry.checkpoint.step == 3) std::filesystem::remove_all(path(2));
  });
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->items.size(), 3U);
  EXPECT_EQ(report->items[1].verdict, ScrubVerdict::vanished);
  EXPECT_FALSE(std::filesystem::exists(path(2))) << "a mark made it come back";
}

TEST_F(Scrub, WithoutABitOfDataThereIsNothingToRecordButANote) {
  const auto report = scrubbed(store_.io());
  ASSERT_TRUE(report);
  for (const ScrubItem& item : report->items) {
    EXPECT_EQ(item.verdict, ScrubVerdict::intact);
    EXPECT_TRUE(item.recorded);
  }
  const catalog::Marks marks = catalog::read_marks(store_.io(), path(1) + "/marks");
  ASSERT_EQ(marks.marks.size(), 1U);
  EXPECT_EQ(marks.marks[0].kind, Mark::Kind::note);
}

TEST_F(Scrub, AnyOperationThatFailsOnceNeverLeavesAFalseWord) {
  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    for (std::uint64_t step = 1; step <= 3; ++step) std::filesystem::remove_all(path(step) + "/marks");
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::io);
    const auto fault = make_fault_io(io(), plan);
    const auto report = scrubbed(*fault);
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const catalog::Marks marks = catalog::read_marks(store_.io(), path(step) + "/marks");
      EXPECT_TRUE(marks.unreadable.empty()) << marks.unreadable;
      for (const Mark& mark : marks.marks) EXPECT_NE(mark.kind, Mark::Kind::verified) << "a failed read is no damage";
    }
    if (report) {
      EXPECT_TRUE(report->total == 3 || !report->saw_all) << "a run was left out in silence";
      for (const ScrubItem& item : report->items) {
        EXPECT_NE(item.verdict, ScrubVerdict::damaged);
        EXPECT_TRUE(item.recorded || item.error || !item.unrecorded_because.empty());
      }
    }
    if (plan->first_failed().empty()) break;
    ++failed;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(failed, 30U);
}

}  // namespace
}  // namespace ckpt
