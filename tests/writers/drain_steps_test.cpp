// Steps of a drain with several nodes, without disks.
#include "writers/drain_steps.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kCopyStep = 1;
constexpr unsigned kLastStep = 2;
constexpr int kElsewhere = 9;  // a leader of no test: the last step runs nowhere

/// The steps of a rank that is a node of its own.
DrainSteps steps_of(Comm& comm) {
  return {comm, 10s, {.leader = comm.rank(), .several = true}, nullptr};
}

std::shared_ptr<SaveJob> job_in(unsigned step, int leader) {
  auto save = std::make_shared<SaveJob>(Hash128{.bytes = {1}});
  save->drain_step = step;
  save->drain_leader = leader;
  return save;
}

TEST(DrainSteps, AllLeadersCopyAndOneBeginsAndPublishes) {
  const ThreadRanks ranks(3);
  ranks.run([](Comm& comm) {
    const Nodes nodes{.leader = comm.rank() == 0 ? 0 : 1, .several = true};  // ranks 1 and 2 share a node
    const DrainSteps steps(comm, 10s, nodes, nullptr);
    EXPECT_EQ(steps.takes_part(*job_in(0, 1)), comm.rank() == 1);
    EXPECT_EQ(steps.takes_part(*job_in(kCopyStep, 1)), comm.rank() != 2);
    EXPECT_EQ(steps.takes_part(*job_in(kLastStep, 1)), comm.rank() == 1);
  });
}

TEST(DrainSteps, TheLastStepStartsWhenEachFileIsCopiedBySomeNode) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    const auto save = job_in(kCopyStep, kElsewhere);
    save->finish_draining(comm.is_root() ? "101" : "01", 0);
    const auto goes_on = steps_of(comm).next(save);
    ASSERT_TRUE(goes_on) << goes_on.error().message;
    EXPECT_TRUE(*goes_on);
    EXPECT_EQ(save->drain_step, kLastStep);
  });
}

TEST(DrainSteps, AFileThatNoNodeHasEndsTheDrainOnAllRanks) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    const auto save = job_in(kCopyStep, kElsewhere);
    save->finish_draining(comm.is_root() ? "100" : "01", 0);
    const auto goes_on = steps_of(comm).next(save);
    ASSERT_FALSE(goes_on);
    EXPECT_EQ(exit_code(goes_on.error()), exit_code(Errc::incomplete));
    EXPECT_NE(goes_on.error().message.find("no node has file 2 of 3"), std::string::npos) << goes_on.error().message;
    EXPECT_EQ(save->drain_step, kCopyStep);
  });
}

TEST(DrainSteps, NothingFollowsTheLastStep) {
  const ThreadRanks ranks(2);
  ranks.run([](Comm& comm) {
    const auto save = job_in(kLastStep, kElsewhere);
    const auto goes_on = steps_of(comm).next(save);
    ASSERT_TRUE(goes_on) << goes_on.error().message;
    EXPECT_FALSE(*goes_on);
  });
}

}  // namespace
}  // namespace ckpt::test
