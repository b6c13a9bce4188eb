// A convert on several ranks of which one meets a failure: all end, with one code, and the target is old or new.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "api/conversion_targets.hpp"
#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  IoKind engine = IoKind::threads;
  std::size_t ranks = 3;
  ConversionTarget target;
  std::uint64_t stride = 1;  // between the operations that fail
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

class ConvertRanksFault : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto io = open_io(GetParam().engine);
    if (!io && GetParam().engine == IoKind::uring) GTEST_SKIP() << io.error().message;
  }

  /// Converts on all ranks; operation `n` of rank `broken` fails. Returns each rank's outcome.
  std::vector<Result<ConvertReport>> convert_on_ranks(std::size_t broken, const std::shared_ptr<FaultPlan>& plan) {
    std::vector<Result<ConvertReport>> out(ranks_);
    const ThreadRanks threads(static_cast<int>(ranks_));
    threads.run([&](Comm& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      auto io = open_io(GetParam().engine, 4);
      if (!io) return;
      if (rank == broken) *io = make_fault_io(std::move(*io), plan);
      Session session{.io = **io, .comm = comm, .memory_bytes = std::uint64_t{1} << 31};
      out[rank] = convert(session, {.source = sources_[rank],
                                    .target = target_,
                                    .to = GetParam().target.to,
                                    .shard_bytes = GetParam().target.shard_bytes,
                                    .options = GetParam().target.options});
    });
    return out;
  }

  const TempDir directory_;
  const std::size_t ranks_ = GetParam().ranks;
  std::vector<std::string> sources_ = std::vector(ranks_, golden_root(GetParam().target.golden));
  const std::string target_ = directory_.path() + "/" + GetParam().target.path;
};

TEST_P(ConvertRanksFault, AFailureOfOneRankIsTheOutcomeOfAll) {
  const auto none = std::make_shared<FaultPlan>();
  for (const auto& done : convert_on_ranks(0, none)) ASSERT_TRUE(done) << done.error().message;
  const test::FileTree expected = test::read_tree(target_);
  fs::remove_all(target_);
  for (std::size_t broken = 0; broken < ranks_; ++broken) {
    std::size_t failed = 0;
    for (std::uint64_t n = broken;; n += GetParam().stride) {
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
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
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
        EXPECT_EQ(test::read_tree(target_), expected);
      } else {
        EXPECT_TRUE(code == Errc::no_space) << outcomes[broken].error().message;
      }
      fs::remove_all(target_);
      EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 0) << "left over";
      if (HasFailure()) return;
    }
    EXPECT_GT(failed * GetParam().stride, 20U);
  }
}

TEST_P(ConvertRanksFault, WhatOneRankDoesNotSeeMakesNoRankGoItsOwnWay) {
  const auto none = std::make_shared<FaultPlan>();
  for (const auto& done : convert_on_ranks(0, none)) ASSERT_TRUE(done) << done.error().message;
  const auto made = fs::last_write_time(target_);
  for (std::uint64_t n = 0;; n += GetParam().stride) {
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
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    ASSERT_FALSE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank].error().code, rank == 1 ? Errc::changed : Errc::peer_failed);
    EXPECT_NE(outcomes[rank].error().message.find("is not the same on this rank and rank 0"), std::string::npos)
        << outcomes[rank].error().message;
  }
  EXPECT_FALSE(fs::exists(target_));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const IoKind engine : {IoKind::threads, IoKind::uring}) {
    const std::string name = engine == IoKind::uring ? "Uring" : "Threads";
    out.push_back({.name = name + "Shards", .engine = engine, .target = shards_target()});
    for (const ConversionTarget& target : foreign_targets())
      out.push_back({name + target.name, engine, 2, target, fault_stride(target, 11)});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Targets, ConvertRanksFault, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace ckpt
