// Loads that ranks divide, over MPI: four processes, judged by their lines and their exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <regex>
#include <string>

#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

struct Launch {
  int code = -1;
  std::string output;
};

Launch launch(const std::string& options, const std::string& scenario, const std::string& run) {
  // Without leak checks: MPI unloads its parts before it ends, so what they leave cannot be told by their names.
  const std::string command = "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 timeout 200 " CKPT_MPIRUN
                              " --allow-run-as-root --oversubscribe " +
                              options + " -n 4 " CKPT_REPLICA_RANKS " " + scenario + " " + run + " 2>&1";
  Launch result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    result.output.append(part.data(), got);
  }
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

TEST(MpiReplicas, FourRanksReadOnceWhatTheyHoldAlike) {
  const TempDir directory(memory_temp_dir());
  const Launch result = launch("", "load", directory.path() + "/run");
  ASSERT_EQ(result.code, 0) << result.output;
  std::uint64_t needed = 0;
  std::uint64_t received = 0;
  int ranks = 0;
  const std::regex line(R"(rank \d: needed (\d+) received (\d+) end)");
  for (std::sregex_iterator at(result.output.begin(), result.output.end(), line), end; at != end; ++at, ++ranks) {
    needed += std::stoull((*at)[1]);
    received += std::stoull((*at)[2]);
  }
  EXPECT_EQ(ranks, 4) << result.output;
  // Every rank holds most of it, the large table: at least half of all was read by another one.
  EXPECT_GT(received, needed / 2) << result.output;
  EXPECT_LT(received, needed) << result.output;
}

TEST(MpiReplicas, ARankKilledInTheExchangeIsLostToTheOthersWhoEnd) {
  const TempDir directory(memory_temp_dir());
  const Launch result = launch("--enable-recovery", "one_is_killed", directory.path() + "/run");
  EXPECT_NE(result.code, 124) << "somebody waits for ever";
  for (const char* rank : {"rank 0: ", "rank 1: ", "rank 3: "}) {
    EXPECT_NE(result.output.find(std::string(rank) + "a rank has not answered"), std::string::npos) << result.output;
  }
}

}  // namespace
}  // namespace ckpt::test
