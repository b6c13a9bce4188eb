// A convert on several ranks of which one meets a failure: all end, with one code, and the target is old or new.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRanks = 3;

class ConvertRanksFault : public testing::TestWithParam<IoKind> {
 protected:
  void SetUp() override {
    if (const auto io = open_io(GetParam()); !io && GetParam() == IoKind::uring) GTEST_SKIP() << io.error().message;
  }

  /// Converts on all ranks; operation `n` of rank `broken` fails. Returns each rank's outcome.
  std::vector<Result<ConvertReport>> convert_on_ranks(std::size_t broken, const std::shared_ptr<FaultPlan>& plan) {
    std::vector<Result<ConvertReport>> out(kRanks);
    const ThreadRanks ranks(static_cast<int>(kRanks));
    ranks.run([&](Comm& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      auto io = open_io(GetParam(), 4);
      if (!io) return;
      if (rank == broken) *io = make_fault_io(std::move(*io), plan);
      Session session{.io = **io, .comm = comm, .memory_bytes = std::uint64_t{1} << 31};
      out[rank] =
          convert(session, {.source = sources_[rank], .target = target_, .to = "safetensors", .shard_bytes = 16 << 10});
    });
    return out;
  }

  const TempDir directory_;
  std::vector<std::string> sources_{kRanks, golden_root("deepspeed/zero3_fp32_dp3_tied_tiny")};
  const std::string target_ = directory_.path() + "/m";
};

TEST_P(ConvertRanksFault, AFailureOfOneRankIsTheOutcomeOfAll) {
  const auto none = std::make_shared<FaultPlan>();
  for (const auto& done : convert_on_ranks(0, none)) ASSERT_TRUE(done) << done.error().message;
  fs::rename(target_, directory_.path() + "/expected");
  const auto same_as_expected = [&] {
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/expected")) {
      const std::string made = target_ + "/" + entry.path().filename().string();
      if (!fs::exists(made) || test::read_file(made) != test::read_file(entry.path())) return false;
    }
    return true;
  };
  for (std::size_t broken = 0; broken < kRanks; ++broken) {
    std::size_t failed = 0;
    for (std::uint64_t n = 0;; ++n) {
      const auto plan = std::make_shared<FaultPlan>();
      plan->fail_once(n, Errc::no_space);
      const auto start = std::chrono::steady_clock::now();
      const auto outcomes = convert_on_ranks(broken, plan);
      if (plan->first_failed().empty()) {
        fs::remove_all(target_);
        break;
      }
      SCOPED_TRACE("rank " + std::to_string(broken) + ", operation " + std::to_string(n) + ", " + plan->first_failed());
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(55));
      if (!outcomes[broken]) {
        ++failed;
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
          ASSERT_FALSE(outcomes[rank]) << "rank " << rank << " succeeded";
          if (rank == broken) continue;
          EXPECT_EQ(outcomes[rank].error().code, Errc::peer_failed) << outcomes[rank].error().message;
        }
      } else {
        for (const auto& done : outcomes) EXPECT_TRUE(done) << done.error().message;
      }
      const Errc code = outcomes[broken] ? Errc::differs : outcomes[broken].error().code;
      const bool visible = outcomes[broken] || code == Errc::not_durable;
      EXPECT_EQ(fs::exists(target_), visible);
      if (visible) {
        EXPECT_TRUE(same_as_expected());
      } else {
        EXPECT_TRUE(code == Errc::no_space) << outcomes[broken].error().message;
      }
      fs::remove_all(target_);
      EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 1) << "left over";
      if (HasFailure()) return;
    }
    EXPECT_GT(failed, 20U);
  }
}

TEST_P(ConvertRanksFault, WhatOneRankDoesNotSeeMakesNoRankGoItsOwnWay) {
  const auto none = std::make_shared<FaultPlan>();
  for (const auto& done : convert_on_ranks(0, none)) ASSERT_TRUE(done) << done.error().message;
  const auto made = fs::last_write_time(target_);
  for (std::uint64_t n = 0;; ++n) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::not_found);
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = convert_on_ranks(1, plan);
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(55));
    for (const auto& done : outcomes) {
      ASSERT_EQ(done.has_value(), outcomes[0].has_value());
      EXPECT_TRUE(!done || done->already_done);
    }
    EXPECT_EQ(fs::last_write_time(target_), made);
    if (plan->first_failed().empty()) break;
  }
}

TEST_P(ConvertRanksFault, ASourceThatIsNotTheSameOnAllRanksIsRefused) {
  const std::string copy = directory_.path() + "/copy";
  fs::copy(sources_[1], copy, fs::copy_options::recursive);
  for (const auto& entry : fs::recursive_directory_iterator(copy)) {
    const fs::path original = sources_[1] / fs::relative(entry.path(), copy);
    fs::last_write_time(entry.path(), fs::last_write_time(original));  // equal names, sizes, bytes and times
  }
  sources_[1] = copy;
  const auto outcomes = convert_on_ranks(0, std::make_shared<FaultPlan>());
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_FALSE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank].error().code, rank == 1 ? Errc::changed : Errc::peer_failed);
    EXPECT_NE(outcomes[rank].error().message.find("sees different files"), std::string::npos)
        << outcomes[rank].error().message;
  }
  EXPECT_FALSE(fs::exists(target_));
}

INSTANTIATE_TEST_SUITE_P(Engines, ConvertRanksFault, testing::Values(IoKind::threads, IoKind::uring),
                         [](const auto& kind) { return kind.param == IoKind::uring ? "uring" : "threads"; });

}  // namespace
}  // namespace ckpt
