// A save that fails is told: by the call that can know it, else by close, else on stderr.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/tiered_job.hpp"

namespace ckpt::test {
namespace {

struct ReportedFlag {
  JobLayout layout{};
  bool staged = false;
  bool tiered = false;
};

class ToldFailures : public testing::TestWithParam<ReportedFlag> {
 protected:
  /// Over runs whose last rank's disk obeys a plan.
  void on_ranks(
      const std::shared_ptr<FaultPlan>& plan, const std::function<void(std::size_t rank, ckpt::Run& run)>& body,
      std::function<void(const std::string&)> log = [](const std::string&) {}) const {
    const std::size_t last = GetParam().layout.ranks() - 1;
    ckpt::Run::Options options{.staging_bytes = GetParam().staged ? 1U : 0U, .patience = 300s, .log = std::move(log)};
    if (GetParam().tiered) options.local_directory = directory_.path() + "/nvme/run";
    with_runs(
        GetParam().layout, run_, options,
        [&](std::size_t rank) { return rank == last ? make_fault_io(real_io(rank), plan) : real_io(rank); },
        [&](std::size_t rank, auto run) {
          ASSERT_TRUE(run) << run.error().message;
          body(rank, **run);
        });
  }
  /// Commits; what became of it nobody asks.
  static Result<> save_and_forget(ckpt::Run& run, std::uint64_t step) {
    std::vector<std::vector<std::byte>> memory;
    CKPT_CHECK(run.begin(step));
    CKPT_CHECK(add_all(run, step, memory));
    CKPT_TRY(const auto pending, run.commit({}));
    static_cast<void>(pending);
    return {};
  }
  static std::shared_ptr<FaultPlan> full_disk() {
    auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"write"});
    return plan;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/shared/run";
};

TEST_P(ToldFailures, AFullDiskIsToldByCommitOrByCloseThoughLaterSavesAreGood) {
  const auto plan = full_disk();
  plan->fail_once(0, Errc::no_space);
  on_ranks(plan, [&](std::size_t rank, ckpt::Run& run) {
    const auto first = save_and_forget(run, 1);
    EXPECT_EQ(first.has_value(), GetParam().staged);
    if (!first) {
      EXPECT_EQ(exit_code(first.error()), 14) << "rank " << rank << ": " << first.error().message;
    }
    for (const std::uint64_t step : {2u, 3u}) {
      const auto later = save_and_forget(run, step);
      EXPECT_TRUE(later) << later.error().message;
    }
    const auto closed = run.close();
    EXPECT_EQ(closed.has_value(), !GetParam().staged);
    if (closed) return;
    EXPECT_EQ(exit_code(closed.error()), 14) << closed.error().message;
    EXPECT_NE(closed.error().message.find("step 1: not saved"), std::string::npos) << closed.error().message;
  });
  EXPECT_EQ(names(run_), (Names{"step-000000002.g1", "step-000000003.g2"}));
}

TEST_P(ToldFailures, WhatWasAskedAboutIsNotToldAgain) {
  const auto plan = full_disk();
  plan->fail_once(0, Errc::no_space);
  on_ranks(plan, [&](std::size_t, ckpt::Run& run) {
    const auto saved = save_step(run, 1);
    ASSERT_FALSE(saved);
    EXPECT_EQ(exit_code(saved.error()), 14) << saved.error().message;
    EXPECT_TRUE(save_step(run, 2));
    const auto closed = run.close();
    EXPECT_TRUE(closed) << closed.error().message;
  });
}

TEST_P(ToldFailures, OfSeveralTheWorstIsToldAndHowManyMoreThereAre) {
  if (!GetParam().staged) GTEST_SKIP() << "each commit tells";
  const auto plan = full_disk();
  on_ranks(plan, [&](std::size_t rank, ckpt::Run& run) {
    for (const std::uint64_t step : {1u, 2u, 3u}) {
      if (rank + 1 == GetParam().layout.ranks()) {
        plan->clear();
        plan->count_only({"write"});
        if (step != 3) plan->fail_once(plan->operation_count(), step == 1 ? Errc::io : Errc::no_space);
      }
      ASSERT_TRUE(save_and_forget(run, step));
      static_cast<void>(run.wait_all(kLong));  // which of them it is about it does not say
    }
    const auto closed = run.close();
    ASSERT_FALSE(closed);
    EXPECT_EQ(exit_code(closed.error()), 16) << closed.error().message;
    EXPECT_NE(closed.error().message.find("step 1: not saved"), std::string::npos) << closed.error().message;
    EXPECT_NE(closed.error().message.find("(1 more failed)"), std::string::npos) << closed.error().message;
  });
}

TEST_P(ToldFailures, AMistakeInAddIsToldAtOnceAndFailsCommitOnAllRanks) {
  on_ranks(std::make_shared<FaultPlan>(), [&](std::size_t rank, ckpt::Run& run) {
    std::vector<std::vector<std::byte>> memory;
    const std::vector<std::byte> bytes(12);
    const MemorySource some{.data = bytes.data(), .bytes = bytes.size()};
    const Tensor known = run.model().rows.front().tensor;
    const Tensor other{.name = "other", .dtype = Dtype::f32, .shape = {2, 3}};
    const Piece mistakes[] = {
        {.name = known.name, .memory = some},
        {.name = "nosuch", .memory = some},
        {.described = known, .chunk = {.box = Box::whole(known.shape)}, .memory = some},
        {.described = other, .chunk = {.box = Box::whole(other.shape)}, .memory = some},
        {.described = other, .chunk = {.box = {.offset = {1, 1}, .size = {1, 3}}}, .memory = some},
    };
    for (const Piece& mistake : mistakes) {
      ASSERT_TRUE(run.begin(1));
      if (rank == 0) {
        const auto added = run.saver().add(mistake);
        ASSERT_FALSE(added) << mistake.name;
        EXPECT_EQ(exit_code(added.error()), 2) << added.error().message;
        EXPECT_NE(added.error().tensor, "");
      }
      const auto committed = run.commit({});
      ASSERT_FALSE(committed);
      EXPECT_EQ(exit_code(committed.error()), 2) << committed.error().message;
    }
    ASSERT_TRUE(run.begin(1));
    ASSERT_TRUE(add_all(run, 1, memory));
    const auto& row = run.model().rows.front();
    const auto part = part_of(run.model(), row, rank, 1);
    const auto twice =
        run.saver().add({.name = row.tensor.name, .memory = {.data = part.data(), .bytes = part.size()}});
    EXPECT_FALSE(twice);
    EXPECT_FALSE(run.commit({}));
    const auto saved = save_step(run, 2);
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_TRUE(run.close());
  });
  EXPECT_EQ(names(run_), Names{"step-000000002.g1"});
}

TEST_P(ToldFailures, WithoutALogTheFirstGoesToStderrOnce) {
  const auto plan = full_disk();
  plan->fail_once(0, Errc::no_space, false, 2);
  testing::internal::CaptureStderr();
  on_ranks(plan,
           [&](std::size_t, ckpt::Run& run) {
             for (const std::uint64_t step : {1u, 2u, 3u}) static_cast<void>(save_and_forget(run, step));
             static_cast<void>(run.wait_all(kLong));
           },
           {});
  const std::string told = testing::internal::GetCapturedStderr();
  const std::size_t first = told.find("ckpt: step ");
  ASSERT_NE(first, std::string::npos) << told;
  EXPECT_EQ(told.find("ckpt: step ", first + 1), std::string::npos) << told;
}

TEST_P(ToldFailures, ADrainThatFailedIsToldByClose) {
  if (!GetParam().tiered) GTEST_SKIP() << "no drains";
  const auto plan = std::make_shared<FaultPlan>();
  on_ranks(plan, [&](std::size_t rank, ckpt::Run& run) {
    if (rank == 0) fs::rename(run_, run_ + ".away");
    ASSERT_TRUE(save_and_forget(run, 1));
    ASSERT_FALSE(run.wait_all(kLong));
    if (rank == 0) fs::rename(run_ + ".away", run_);
    ASSERT_TRUE(save_and_forget(run, 2));
    const auto closed = run.close();
    ASSERT_FALSE(closed);
    EXPECT_NE(closed.error().message.find("step 1: durable in"), std::string::npos) << closed.error().message;
  });
  EXPECT_EQ(names(run_), Names{"step-000000002.g2"});
}

INSTANTIATE_TEST_SUITE_P(Ranks, ToldFailures,
                         testing::Values(ReportedFlag{}, ReportedFlag{.staged = true},
                                         ReportedFlag{.layout = {.dp = 3, .zero = 1}},
                                         ReportedFlag{.layout = {.dp = 3, .zero = 1}, .staged = true},
                                         ReportedFlag{.staged = true, .tiered = true},
                                         ReportedFlag{.layout = {.dp = 3, .zero = 1}, .staged = true, .tiered = true}),
                         [](const auto& each) {
                           return std::to_string(each.param.layout.ranks()) +
                                  (each.param.staged ? "_staged" : "_waits") + (each.param.tiered ? "_tiered" : "");
                         });

}  // namespace
}  // namespace ckpt::test
