// The MPI plug-in under mpirun: one program of many ranks a test, judged by its lines, its exit code and its time.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

namespace ckpt {
namespace {

struct Launch {
  int code = -1;
  std::string output;
  double seconds = 0;

  std::size_t count(const std::string& text) const {
    std::size_t found = 0;
    for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++found;
    return found;
  }
};

Launch launch_program(int ranks, const std::string& words) {
  // Without leak checks: MPI unloads its parts before it ends, so what they leave cannot be told by their names.
  const std::string command = std::string("ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 timeout 100 " CKPT_MPIRUN
                                          " --allow-run-as-root --oversubscribe -n ") +
                              std::to_string(ranks) + " " + words + " 2>&1";
  Launch result;
  const auto start = std::chrono::steady_clock::now();
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    result.output.append(part.data(), got);
  }
  const int status = ::pclose(pipe);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

Launch launch(int ranks, const std::string& scenario, int promised_ranks) {
  return launch_program(ranks, CKPT_COMM_RANKS " " + scenario + " " + std::to_string(promised_ranks));
}

class MpiComm : public testing::TestWithParam<int> {};

TEST_P(MpiComm, CarriesEveryCollectiveForMessagesOfOneAndOfManyPieces) {
  const Launch result = launch(GetParam(), "collectives", GetParam());
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.count(": ok\n"), static_cast<std::size_t>(GetParam())) << result.output;
}

TEST_P(MpiComm, CarriesMessagesBetweenAllPairs) {
  const Launch result = launch(GetParam(), "messages", GetParam());
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.count(": ok\n"), static_cast<std::size_t>(GetParam())) << result.output;
}

TEST_P(MpiComm, AFailedRankEndsAllWithItsCodeAndItsMessage) {
  const Launch result = launch(GetParam(), "one_fails", GetParam());
  const std::string own = "rank " + std::to_string(GetParam() - 1) + ": out: allocate: No space left on device\n";
  EXPECT_EQ(result.code, 14) << result.output;
  EXPECT_EQ(result.count(own), static_cast<std::size_t>(GetParam())) << result.output;  // from itself and from others
  EXPECT_LT(result.seconds, 60.0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiComm, testing::Values(1, 2, 4), testing::PrintToStringParamName());

TEST(MpiLoss, AKilledRankEndsTheProgramInTime) {
  const Launch result = launch(4, "one_is_killed", 4);
  EXPECT_NE(result.code, 0) << result.output;
  EXPECT_EQ(result.count(": ok\n"), 0U) << result.output;
  EXPECT_LT(result.seconds, 60.0) << result.output;
}

TEST(MpiLoss, ASilentRankIsGivenUpAndNobodyWaitsForItInTheEnd) {
  const Launch result = launch(3, "one_is_silent", 3);
  EXPECT_EQ(result.code, 16) << result.output;
  EXPECT_GE(result.count("not all ranks answered before the deadline\n"), 2U) << result.output;
  EXPECT_LT(result.seconds, 60.0) << result.output;
}

TEST(MpiLoss, ARankThatDoesNotComeToTheOpeningIsGivenUp) {
  const Launch result = launch_program(3, CKPT_LATE_RANK);
  EXPECT_GE(result.count("given up\n"), 2U) << result.output;
  EXPECT_LT(result.seconds, 60.0) << result.output;
}

TEST(MpiLoss, AnErrorOfAnyCallIsToldAndEndsNothing) {
  const Launch result = launch_program(1, CKPT_FAILING_RANK);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.count("ok: "), 1U) << result.output;
}

TEST(MpiLaunch, AnotherNumberOfRanksThanPromisedIsAnError) {
  const Launch result = launch(2, "library", 3);
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_GE(result.count("the launcher promises 3 ranks"), 1U) << result.output;
}

TEST(MpiLaunch, TheLibraryNamesItself) {
  const Launch result = launch(1, "library", 0);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.count("rank 0: Open MPI v"), 1U) << result.output;
  EXPECT_EQ(result.count("package"), 0U) << result.output;
}

}  // namespace
}  // namespace ckpt
