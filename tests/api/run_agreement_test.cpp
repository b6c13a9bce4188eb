// What the ranks of a run must have alike, and how long they wait for each other's disks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/io/forwarding_io.hpp"
#include "support/fault_io.hpp"
#include "support/tiered_job.hpp"

namespace ckpt::test {
namespace {

/// Sees another directory under a name, as a node does where something else is mounted.
class Elsewhere : public ForwardingIo {
 public:
  Elsewhere(std::unique_ptr<Io> inner, std::string from, std::string to)
      : ForwardingIo(std::move(inner)), from_(std::move(from)), to_(std::move(to)) {}
  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return std::unique_ptr<Io>(std::make_unique<Elsewhere>(std::move(own), from_, to_));
  }
  Result<FileInfo> stat(const std::string& path) override { return ForwardingIo::stat(there(path)); }
  Result<std::vector<DirEntry>> list(const std::string& path) override { return ForwardingIo::list(there(path)); }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    return ForwardingIo::lock(there(path), mode);
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    return ForwardingIo::open(there(path), options);
  }

 private:
  std::string there(const std::string& path) const {
    return path.starts_with(from_) ? to_ + path.substr(from_.size()) : path;
  }
  const std::string from_;
  const std::string to_;
};

class RunAgreement : public testing::Test {
 protected:
  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

TEST_F(RunAgreement, OptionsThatDifferBetweenRanksAreRefusedByName) {
  const std::vector<std::pair<ckpt::Run::Options, std::string>> others = {
      {{.every_steps = 3}, "every_steps"},
      {{.every_steps = 2, .most_overhead = 0.1}, "max_overhead"},
      {{.every_steps = 2, .policy_store = directory_.path()}, "policy_store"},
      {{.staging_bytes = 1, .every_steps = 2}, "staging_memory"}};
  for (const auto& each : others) {
    const ckpt::Run::Options& other = each.first;
    const std::string& name = each.second;
    const ThreadRanks ranks(2);
    ranks.run_tables([&](const ckpt_comm_table& table) {
      auto comm = std::make_unique<Comm>(table);
      const ckpt::Run::Options options = comm->rank() == 1 ? other : ckpt::Run::Options{.every_steps = 2};
      const auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, options);
      ASSERT_FALSE(run);
      EXPECT_EQ(exit_code(run.error()), 2);
      EXPECT_NE(run.error().message.find(name), std::string::npos) << run.error().message;
    });
  }
}

TEST_F(RunAgreement, RanksThatSeeOtherCheckpointsUnderOneNameDoNotLoad) {
  const auto directory = [this](std::size_t rank) { return run_ + std::to_string(rank); };
  for (const std::size_t rank : {0u, 1u}) {
    with_runs(kAlone, directory(rank), {}, real_io, [&](std::size_t, auto run) { ASSERT_TRUE(save_step(**run, 5)); });
  }
  // As with a relative path and several working directories.
  const JobLayout replicas{.dp = 2};
  const auto load = [&](bool alike) {
    with_runs(
        replicas, directory(0), {},
        [&](std::size_t rank) {
          return std::make_unique<Elsewhere>(real_io(rank), directory(0), directory(alike ? 0 : rank));
        },
        [&](std::size_t rank, auto run) {
          ASSERT_TRUE(run) << run.error().message;
          const auto newest = (*run)->usable();
          EXPECT_EQ(newest.has_value(), alike) << "rank " << rank;
          const auto loaded = load_all(**run);
          EXPECT_EQ(loaded.has_value(), alike) << "rank " << rank;
          if (loaded) return;
          EXPECT_EQ(exit_code(loaded.error()), 16);
          EXPECT_NE(loaded.error().message.find("not the same checkpoint on all ranks"), std::string::npos)
              << loaded.error().message;
        });
  };
  load(true);
  load(false);
}

TEST_F(RunAgreement, ReplicasAndBlobsThatDifferBetweenRanksAreRefusedByName) {
  const JobLayout replicas{.dp = 3};
  with_runs(replicas, run_, {.log = [](const std::string&) {}}, real_io, [&](std::size_t rank, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    const auto save = [&](const std::string& changed, std::size_t at, std::byte blob) -> Result<> {
      CKPT_CHECK((*run)->begin(1));
      std::vector<std::vector<std::byte>> memory;
      for (const auto& row : (*run)->model().rows) {
        auto& part = memory.emplace_back(part_of((*run)->model(), row, rank, 1));
        if (row.tensor.name == changed && rank == 2) part.at(at) ^= std::byte{1};
        CKPT_CHECK(
            (*run)->saver().add({.name = row.tensor.name, .memory = {.data = part.data(), .bytes = part.size()}}));
      }
      const Tensor tensor{.name = "state", .dtype = Dtype::u8, .shape = {1}, .role = Role::blob};
      if (rank != 0) {
        CKPT_CHECK((*run)->saver().add(
            {.described = tensor, .chunk = {.box = Box::whole(tensor.shape)}, .memory = {.data = &blob, .bytes = 1}}));
      }
      return (*run)->commit({}).map([](auto&&) {});
    };
    const auto mark = static_cast<std::byte>(rank);
    struct Case {
      Result<> saved;
      std::string name;
    };
    for (const Case& each :
         {Case{save("scale", 1, std::byte{7}), "scale"}, Case{save("table", 64 * 5000 * 4 - 1, {}), "table"},
          Case{save("layers.1.norm", 0, {}), "layers.1.norm"}, Case{save("", 0, mark), "state"}}) {
      ASSERT_FALSE(each.saved) << each.name;
      EXPECT_EQ(exit_code(each.saved.error()), 2) << each.saved.error().message;
      EXPECT_NE(each.saved.error().message.find(each.name), std::string::npos) << each.saved.error().message;
    }
    const auto saved = save("", 0, std::byte{7});
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_TRUE((*run)->close());
  });
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
}

/// Bytes of a tensor as a rank adds them: an array, or what only a callback can read.
MemorySource given(std::vector<std::byte>& part, bool by_callback) {
  if (!by_callback) return {.data = part.data(), .bytes = part.size()};
  return {.bytes = part.size(), .fill = [&part](std::byte* out, std::uint64_t offset, std::uint64_t size) -> Result<> {
            std::memcpy(out, part.data() + offset, static_cast<std::size_t>(size));
            return {};
          }};
}

TEST_F(RunAgreement, OneBitAnywhereInAReplicaIsFoundWhoeverWritesItAndHoweverItWasAdded) {
  const JobLayout replicas{.dp = 3};
  constexpr std::size_t kTableBytes = 64 * 5000 * 4;  // divided by rows between the ranks
  with_runs(replicas, run_, {.log = [](const std::string&) {}}, real_io, [&](std::size_t rank, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    const auto save = [&](std::size_t changed_rank, std::size_t at, bool by_callback,
                          const std::string& left_out = "") -> Result<> {
      CKPT_CHECK((*run)->begin(1));
      std::deque<std::vector<std::byte>> memory;
      for (const auto& row : (*run)->model().rows) {
        auto& part = memory.emplace_back(part_of((*run)->model(), row, rank, 1));
        if (row.tensor.name == "table" && rank == changed_rank) part.at(at) ^= std::byte{1};
        if (row.tensor.name == left_out && rank == changed_rank) continue;
        CKPT_CHECK((*run)->saver().add({.name = row.tensor.name, .memory = given(part, by_callback)}));
      }
      return (*run)->commit({}).map([](auto&&) {});
    };
    for (const bool by_callback : {false, true}) {
      for (const std::size_t at : {std::size_t{1}, kTableBytes / 3 - 777, kTableBytes / 2 + 12345, kTableBytes - 100}) {
        for (const std::size_t changed : {0u, 1u, 2u}) {
          const auto saved = save(changed, at, by_callback);
          ASSERT_FALSE(saved) << "rank " << changed << ", byte " << at << (by_callback ? ", callback" : "");
          EXPECT_EQ(exit_code(saved.error()), 2) << saved.error().message;
          EXPECT_NE(saved.error().message.find("table"), std::string::npos) << saved.error().message;
        }
      }
    }
    // A rank that leaves out a tensor, which others write, is compared in what it adds.
    for (const auto& row : (*run)->model().rows) {
      if (row.tensor.name == "table") continue;
      const auto saved = save(2, kTableBytes / 2 + 54321, false, row.tensor.name);
      EXPECT_FALSE(saved) << row.tensor.name;
    }
    const auto saved = save(9, 0, true);
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_TRUE((*run)->close());
  });
  EXPECT_EQ(names(run_), Names{"step-000000001.g1"});
}

TEST_F(RunAgreement, AReplicaThatCannotBeReadFailsTheSaveOnAllRanks) {
  const JobLayout replicas{.dp = 3};
  with_runs(replicas, run_, {.log = [](const std::string&) {}}, real_io, [&](std::size_t rank, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_TRUE((*run)->begin(1));
    std::deque<std::vector<std::byte>> memory;
    for (const auto& row : (*run)->model().rows) {
      auto& part = memory.emplace_back(part_of((*run)->model(), row, rank, 1));
      MemorySource source = given(part, true);
      if (rank == 1) {
        source.fill = [](std::byte*, std::uint64_t, std::uint64_t) -> Result<> {
          return fail(Errc::io, "the device does not answer");
        };
      }
      ASSERT_TRUE((*run)->saver().add({.name = row.tensor.name, .memory = std::move(source)}));
    }
    const auto saved = (*run)->commit({});
    ASSERT_FALSE(saved);
    if (rank == 1) {
      EXPECT_NE(saved.error().message.find("does not answer"), std::string::npos) << saved.error().message;
    } else {
      EXPECT_EQ(saved.error().code, Errc::peer_failed) << saved.error().message;
    }
    EXPECT_TRUE(save_step(**run, 2));
    static_cast<void>((*run)->close());  // tells of step 1
  });
  EXPECT_EQ(names(run_), Names{"step-000000002.g1"});
}

/// Rank 0's disk stalls once, at every n-th operation that it is asked for, until the other rank has heard of it again
/// and again. One that waited for its disk in silence would never be heard of.
TEST_F(RunAgreement, ADiskThatStallsLosesNobodyForItsRankGoesOnAnswering) {
  constexpr std::uint64_t kHeard = 5;
  const auto plan = std::make_shared<FaultPlan>();
  struct Stall {
    std::string operation;
    std::uint64_t n;
  };
  const auto job = [&](std::size_t step, const Stall* stall) {
    const ThreadRanks ranks(2);
    std::atomic<bool> heard{false};
    plan->clear();
    if (stall != nullptr) {
      plan->count_only({stall->operation});
      plan->call_at(plan->operation_count() + stall->n, [&] {
        const auto far = std::chrono::steady_clock::now() + kLong;
        const std::uint64_t before = ranks.requests(1);
        while (!heard && std::chrono::steady_clock::now() < far) {
          heard = ranks.requests(1) >= before + kHeard;
          std::this_thread::sleep_for(1ms);
        }
      });
    }
    ranks.run_tables([&](const ckpt_comm_table& table) {
      auto comm = std::make_unique<Comm>(table);
      const int rank = comm->rank();
      auto io = rank == 0 ? make_fault_io(real_io(0), plan) : real_io(1);
      auto run = ckpt::Run::open(std::move(io), std::move(comm), run_,
                                 {.staging_bytes = 1, .patience = kLong / 2, .log = [](const std::string&) {}});
      ASSERT_TRUE(run) << "rank " << rank << ": " << run.error().message;
      (*run)->set_model(*model_of(kPair));
      const auto loaded = load_all(**run);
      ASSERT_TRUE(loaded || loaded.error().code == Errc::not_found) << loaded.error().message;
      for (const std::size_t each : {step, step + 1}) {  // the second waits for the first one's commit
        ASSERT_TRUE(commit_step(**run, each)) << "rank " << rank;
      }
      const auto closed = (*run)->close();
      ASSERT_TRUE(closed) << "rank " << rank << ": " << closed.error().message;
    });
    if (stall == nullptr) return;
    EXPECT_NE(plan->first_failed(), "") << "nothing stalled";
    EXPECT_TRUE(heard) << "nobody heard of a rank that waited for its disk";
  };
  job(1, nullptr);
  std::size_t step = 3;
  for (const Stall& stall :
       {Stall{"mkdir", 0}, {"mkdir", 1}, {"list", 0}, {"list", 1}, {"lock", 0}, {"open", 0}, {"rename", 0}}) {
    SCOPED_TRACE(stall.operation + " " + std::to_string(stall.n));
    job(step, &stall);
    step += 2;
  }
}

}  // namespace
}  // namespace ckpt::test
