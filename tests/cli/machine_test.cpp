#include "cli/process/machine.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/process/launch.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::cli {
namespace {

class FakeRoot {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = directory_.path() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  const std::string& path() const { return directory_.path(); }

 private:
  TempDir directory_;
};

constexpr std::uint64_t kMiB = 1 << 20;

TEST(Machine, TheTightestCgroupOfThePathBinds) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/job/step");
  root.write("/sys/fs/cgroup/memory.max", "max");
  root.write("/sys/fs/cgroup/job/memory.max", std::to_string(64 * kMiB));
  root.write("/sys/fs/cgroup/job/step/memory.max", std::to_string(128 * kMiB));
  root.write("/sys/fs/cgroup/job/cpu.max", "100000 100000");
  const Machine machine = read_machine(root.path());
  EXPECT_EQ(machine.memory_bytes, 64 * kMiB);
  EXPECT_EQ(machine.allowed_cpus, 1u);
  EXPECT_EQ(machine.online_cpus, 1u);
}

TEST(Machine, VersionOneControllersAreReadToo) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a");
  root.write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(32 * kMiB));
  root.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000");
  root.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  const Machine machine = read_machine(root.path());
  EXPECT_EQ(machine.memory_bytes, 32 * kMiB);
  EXPECT_EQ(machine.allowed_cpus, 1u) << "half a CPU is one thread";
}

TEST(Machine, APathThatTheContainerDoesNotShowLeavesTheMountsOwnLimit) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/docker/abcdef");
  root.write("/sys/fs/cgroup/memory.max", std::to_string(48 * kMiB));
  EXPECT_EQ(read_machine(root.path()).memory_bytes, 48 * kMiB);
}

TEST(Machine, WithoutCgroupsTheSystemsLimitsStand) {
  FakeRoot root;
  const Machine machine = read_machine(root.path());
  EXPECT_GT(machine.memory_bytes, 64 * kMiB);
  EXPECT_GE(machine.allowed_cpus, 1u);
}

TEST(Defaults, AQuarterOfTheMemoryAtMostEightGibibytesSharedByTheNodesRanks) {
  EXPECT_EQ(default_memory({.memory_bytes = 16'384 * kMiB}, 1), 4096 * kMiB);
  EXPECT_EQ(default_memory({.memory_bytes = 1'048'576 * kMiB}, 1), 8192 * kMiB);
  EXPECT_EQ(default_memory({.memory_bytes = 1'048'576 * kMiB}, 8), 1024 * kMiB);
}

TEST(Defaults, ThreadsAreSharedByTheNodesRanksUnlessTheyAreBoundAlready) {
  EXPECT_EQ(default_threads({.online_cpus = 64, .allowed_cpus = 64}, 1), 64u);
  EXPECT_EQ(default_threads({.online_cpus = 64, .allowed_cpus = 64}, 8), 8u);
  EXPECT_EQ(default_threads({.online_cpus = 64, .allowed_cpus = 1}, 8), 1u);
  EXPECT_EQ(default_threads({.online_cpus = 2, .allowed_cpus = 2}, 4), 1u);
}

Launch launch_of(const std::map<std::string, std::string>& variables) {
  return find_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Launch, RanksOfOneMachineDoNotLookForNetworks) {
  const std::map<std::string, std::string> here{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const std::map<std::string, std::string> apart{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  unsetenv("OMPI_MCA_pml");
  skip_networks(launch_of(apart));
  skip_networks(launch_of({{"SLURM_STEP_NUM_TASKS", "4"}}));
  EXPECT_EQ(std::getenv("OMPI_MCA_pml"), nullptr);
  skip_networks(launch_of(here));
  EXPECT_STREQ(std::getenv("OMPI_MCA_pml"), "ob1");
  setenv("OMPI_MCA_pml", "ucx", 1);
  skip_networks(launch_of(here));
  EXPECT_STREQ(std::getenv("OMPI_MCA_pml"), "ucx");
}

TEST(Launch, OneRankOrNoVariableIsNoLaunch) {
  EXPECT_FALSE(launch_of({}).active());
  EXPECT_FALSE(launch_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}).active());
  EXPECT_FALSE(launch_of({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}).active());
  EXPECT_FALSE(launch_of({{"OMPI_COMM_WORLD_SIZE", "many"}}).active());
}

TEST(Launch, EveryLauncherTellsItsRanks) {
  const Launch open_mpi = launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  EXPECT_EQ(open_mpi.ranks, 4);
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.seen, "OMPI_COMM_WORLD_SIZE=4");
  const Launch hydra = launch_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  EXPECT_EQ(hydra.ranks, 2);
  EXPECT_EQ(hydra.rank, 1);
  const Launch slurm = launch_of({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "7"}, {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(slurm.ranks, 8);
  EXPECT_EQ(slurm.rank, 7);
  EXPECT_EQ(slurm.local_rank, 1);
}

TEST(Launch, ARankWithoutASizeIsALaunchOfUnknownSize) {
  const Launch launch = launch_of({{"PMIX_RANK", "2"}});
  EXPECT_TRUE(launch.active());
  EXPECT_EQ(launch.ranks, 0);
  EXPECT_EQ(launch.rank, 2);
}

}  // namespace
}  // namespace ckpt::cli
