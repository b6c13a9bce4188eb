// Saves of which one operation fails, or after which the power is gone: all ranks agree on the outcome, the checkpoint
// before stays loadable, nothing half is ever found, and the next save works.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Case {
  JobLayout layout{};
  std::size_t broken = 0;  // rank
  IoKind io = IoKind::threads;
};

class RunFault : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!open_io(GetParam().io)) GTEST_SKIP() << "this kernel or container forbids io_uring";
  }
  static std::unique_ptr<Io> io() {
    auto io = open_io(GetParam().io, 4);
    return io ? std::move(*io) : nullptr;
  }
  /// Saves a step on all ranks; `broken`'s operations obey the plan from the save's beginning on.
  std::vector<Result<>> save(std::uint64_t step, const std::shared_ptr<FaultPlan>& plan) const {
    std::vector<Result<>> outcomes(GetParam().layout.ranks());
    with_runs(
        GetParam().layout, run_, {},
        [&](std::size_t rank) { return rank == GetParam().broken ? make_fault_io(io(), plan) : io(); },
        [&](std::size_t rank, auto run) { outcomes[rank] = run ? save_step(**run, step) : fail(run.error()); });
    return outcomes;
  }
  /// The step that all ranks load; 0 where there is none.
  std::uint64_t load() const {
    std::vector<std::uint64_t> steps(GetParam().layout.ranks());
    with_runs(
        GetParam().layout, run_, {}, [](std::size_t) { return io(); },
        [&](std::size_t rank, auto run) {
          ASSERT_TRUE(run) << run.error().message;
          const auto step = load_all(**run);
          if (step) {
            steps[rank] = *step;
          } else {
            ASSERT_EQ(step.error().code, Errc::not_found) << step.error().message << step.error().hint;
          }
        });
    for (const std::uint64_t step : steps) EXPECT_EQ(step, steps[0]);
    return steps[0];
  }
  bool leftover() const {
    for (const auto& entry : fs::directory_iterator(run_)) {
      if (entry.path().filename().string().find(".partial-") != std::string::npos) return true;
    }
    return false;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

TEST_P(RunFault, AFailedOperationFailsTheSaveOnAllRanksAndLosesNothing) {
  const auto none = std::make_shared<FaultPlan>();
  for (const auto& done : save(1, none)) ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(load(), 1u);
  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::no_space);
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = save(n + 2, plan);
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    ASSERT_LT(std::chrono::steady_clock::now() - start, 55s);
    bool all = true;
    for (const auto& done : outcomes) {
      all = all && done.has_value();
      EXPECT_EQ(done.has_value(), outcomes[0].has_value()) << (done ? "" : done.error().message);
    }
    const std::uint64_t found = load();
    if (all) {
      EXPECT_EQ(found, n + 2);
    } else {
      ++failed;
      const Error& error = outcomes[GetParam().broken].error();
      if (error.code != Errc::not_durable) {
        EXPECT_EQ(found, n == 0 ? 1u : found);
        EXPECT_NE(found, n + 2) << "told failed, yet visible: " << error.message;
      }
    }
    if (HasFailure()) return;
    if (plan->first_failed().empty()) break;
    for (const auto& entry : fs::directory_iterator(run_)) {
      if (entry.path().filename() != "step-000000001.g1") fs::remove_all(entry.path());
    }
  }
  EXPECT_FALSE(leftover());
  EXPECT_GT(failed, 15U);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RunFault,
                         testing::Values(Case{.io = IoKind::threads}, Case{.io = IoKind::uring},
                                         Case{.layout = {.dp = 3, .zero = 1}, .broken = 0},
                                         Case{.layout = {.dp = 3, .zero = 1}, .broken = 2, .io = IoKind::uring}),
                         [](const auto& each) {
                           return std::to_string(each.param.layout.ranks()) + "_broken_" +
                                  std::to_string(each.param.broken) +
                                  (each.param.io == IoKind::uring ? "_uring" : "_threads");
                         });

TEST(RunPowerLoss, AtAnyOperationOfASaveTheOldOrTheNewCheckpointIsLoaded) {
  const JobLayout alone;
  const MemoryDisk::PowerLoss losses[] = {{}, {.name_operations = MemoryDisk::kAllNames}, {.block_seed = 1}};
  for (const MemoryDisk::PowerLoss& loss : losses) {
    bool over = false;
    for (std::uint64_t n = 0; !over; ++n) {
      MemoryDisk disk({.capacity_bytes = std::uint64_t{1} << 26});
      disk.put("/store/other", "");
      const auto plan = std::make_shared<FaultPlan>();
      bool told = false;
      with_runs(
          alone, "/store/run", {}, [&](std::size_t) { return make_fault_io(disk.io(), plan); },
          [&](std::size_t, auto run) {
            ASSERT_TRUE(run) << run.error().message;
            const auto first = save_step(**run, 1);
            ASSERT_TRUE(first) << first.error().message;
            plan->clear();
            plan->fail_from(plan->operation_count() + n, Errc::io);
            told = save_step(**run, 2).has_value();
          });
      over = plan->first_failed().empty();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      disk.power_off(loss);
      with_runs(
          alone, "/store/run", {}, [&](std::size_t) { return disk.io(); },
          [&](std::size_t, auto run) {
            ASSERT_TRUE(run) << run.error().message;
            const auto step = load_all(**run);
            ASSERT_TRUE(step) << step.error().message << step.error().hint;
            EXPECT_TRUE(*step == 2 || (*step == 1 && !told)) << *step;
            const auto again = save_step(**run, 3);
            EXPECT_TRUE(again) << again.error().message;
          });
      for (const std::string& path : disk.tree()) EXPECT_EQ(path.find(".partial-"), std::string::npos) << path;
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ckpt::test
