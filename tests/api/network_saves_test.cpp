// Whole saves and loads on a network file system at its worst, by two hosts (simulated: support/network_io.hpp): locks
// that do not reach the other one, names, sizes and listings from memory, renames whose answers are lost, no O_DIRECT,
// files that another host removes.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/io/remove_tree.hpp"
#include "engine/locks/claims.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/network_io.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  NetworkDisk::Options disk{};
  std::uint64_t first = 0;  // operation that something happens at; then every kStride-th
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}
constexpr std::uint64_t kStride = 15;

class NetworkSaves : public testing::TestWithParam<Case> {
 protected:
  NetworkSaves() {
    fs::create_directories(claims_path(store_));
    write_file(claims_path(store_) + "/ready", "");
  }
  using MakeIo = std::function<std::unique_ptr<Io>(std::size_t rank)>;
  /// By a job of its own, on all its ranks.
  std::vector<Result<>> save(const MakeIo& io, std::uint64_t step, const JobLayout& layout = {}) const {
    std::vector<Result<>> out(layout.ranks());
    with_runs(layout, run_, {}, io,
              [&](std::size_t rank, auto run) { out[rank] = run ? save_step(**run, step) : fail(run.error()); });
    return out;
  }
  Result<> save_on(const std::string& host, std::uint64_t step) {
    return save([&](std::size_t) { return network_.io(host, ++last_pid_); }, step).front();
  }
  std::vector<Result<ckpt::Run::Loaded>> load(const MakeIo& io, const JobLayout& layout = {}) const {
    std::vector<Result<ckpt::Run::Loaded>> out(layout.ranks(), fail(Errc::internal, "never loaded"));
    with_runs(layout, run_, {}, io,
              [&](std::size_t rank, auto run) { out[rank] = run ? load_parts(**run) : fail(run.error()); });
    return out;
  }
  Result<ckpt::Run::Loaded> load_on(const std::string& host) {
    return load([&](std::size_t) { return network_.io(host, ++last_pid_); }).front();
  }
  /// Names below the run, as they are on the server.
  std::vector<std::string> names(bool partials) const {
    std::vector<std::string> out;
    if (!fs::exists(run_)) return out;
    for (const auto& entry : fs::directory_iterator(run_)) {
      const std::string name = entry.path().filename();
      if ((name.find(kPartialMark) != std::string::npos) == partials) out.push_back(name);
    }
    return out;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string store_ = directory_.path() + "/store";
  const std::string run_ = store_ + "/run";
  NetworkDisk network_{[] { return *open_io(IoKind::threads, 4); }, GetParam().disk};
  std::uint64_t last_pid_ = 100;
};

INSTANTIATE_TEST_SUITE_P(Network, NetworkSaves,
                         testing::Values(Case{"LocksOfOneHost", {.lost_answers = 1}},
                                         Case{"NoLocks", {.locks = false, .lost_answers = 2}, 5},
                                         Case{
                                             "LocksThatMayReach", {.reach = LockReach::server, .lost_answers = 3}, 10}),
                         [](const auto& one) { return one.param.name; });

TEST_P(NetworkSaves, TwoHostsTakeTurnsAndFindWhatTheOtherSaved) {
  for (std::uint64_t step = 1; step <= 6; ++step) {
    const std::string saves = step % 2 == 0 ? "n1" : "n2";
    const std::string loads = step % 2 == 0 ? "n2" : "n1";
    const auto done = save_on(saves, step);
    ASSERT_TRUE(done) << done.error().message;
    const auto own = load_on(saves);
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_EQ(own->step, step) << "its own saves no host forgets";
    // The other one may remember the run as it was.
    const auto before = load_on(loads);
    EXPECT_TRUE(before ? before->step <= step : before.error().code == Errc::not_found);
    network_.forget();
    const auto now = load_on(loads);
    ASSERT_TRUE(now) << now.error().message;
    EXPECT_EQ(now->step, step);
    EXPECT_TRUE(now->skipped.empty());
  }
  EXPECT_TRUE(names(true).empty()) << names(true).front();
  EXPECT_EQ(names(false).size(), 6u);
}

TEST_P(NetworkSaves, RanksOfOneJobOnTwoHostsSaveAndLoadTogether) {
  const JobLayout layout{.dp = 2, .tp = 2, .zero = 1};
  const auto io = [&](std::size_t rank) { return network_.io(rank < 2 ? "n1" : "n2", 1 + rank); };
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (const auto& done : save(io, step, layout)) ASSERT_TRUE(done) << step << ": " << done.error().message;
    for (const auto& loaded : load(io, layout)) {
      ASSERT_TRUE(loaded) << step << ": " << loaded.error().message << ": " << loaded.error().hint;
      EXPECT_EQ(loaded->step, step) << (loaded->skipped.empty() ? "" : loaded->skipped.front());
    }
  }
  EXPECT_TRUE(names(true).empty()) << names(true).front();
}

TEST_P(NetworkSaves, AnotherHostsSaveInTheMiddleOfOneHarmsNeither) {
  for (const bool same_step : {false, true}) {
    for (std::uint64_t n = GetParam().first;; n += kStride) {
      fs::remove_all(run_);
      network_.forget();
      ASSERT_TRUE(save_on("n1", 1));
      const auto plan = std::make_shared<FaultPlan>();
      Result<> other = fail(Errc::internal, "never saved");
      plan->call_at(n, [&] { other = save_on("n2", same_step ? 2 : 3); });
      const auto mine =
          save([&](std::size_t) { return make_fault_io(network_.io("n1", ++last_pid_), plan); }, 2).front();
      const std::string at = plan->first_failed();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + at);
      if (at.empty()) break;
      EXPECT_TRUE(mine) << mine.error().message;
      EXPECT_TRUE(other) << other.error().message;
      EXPECT_EQ(names(false).size(), 3u);
      EXPECT_TRUE(names(true).empty()) << names(true).front();
      network_.forget();
      const auto loaded = load_on("n3");
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_NE(loaded->step, 1u);
      EXPECT_TRUE(loaded->skipped.empty());
      if (HasFailure()) return;
    }
  }
}

TEST_P(NetworkSaves, AKilledSaveIsNeverLoadedAndStopsNoOtherHost) {
  for (std::uint64_t n = GetParam().first;; n += kStride) {
    fs::remove_all(run_);
    network_.forget();
    ASSERT_TRUE(save_on("n1", 1));
    const auto plan = std::make_shared<FaultPlan>();
    const std::uint64_t pid = ++last_pid_;
    plan->call_at(n, [&] { network_.kill("n1", pid); });
    const auto killed = save([&](std::size_t) { return make_fault_io(network_.io("n1", pid), plan); }, 2).front();
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    if (plan->first_failed().empty()) break;
    const auto loaded = load_on("n2");
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(loaded->step == 2 || (loaded->step == 1 && !killed)) << loaded->step;
    const auto next = save_on("n2", 3);
    EXPECT_TRUE(next) << next.error().message;
    const auto after = load_on("n2");
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(after->step, 3u);
    if (HasFailure()) return;
  }
}

/// Somebody removes by hand what a live process of another host writes.
TEST_P(NetworkSaves, ASaveWhoseFilesAnotherHostRemovesFailsAndSaysSo) {
  ASSERT_TRUE(save_on("n1", 1));
  std::uint64_t stale = 0;
  for (std::uint64_t n = GetParam().first;; n += kStride) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->call_at(n, [&] {
      const auto io = network_.io("n2", ++last_pid_);
      for (const std::string& name : names(true)) EXPECT_TRUE(remove_tree(*io, run_ + "/" + name));
    });
    const std::uint64_t before = network_.stale_count();
    const auto done =
        save([&](std::size_t) { return make_fault_io(network_.io("n1", ++last_pid_), plan); }, n + 2).front();
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    if (plan->first_failed().empty()) break;
    network_.forget();
    const auto loaded = load_on("n2");
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(loaded->skipped.empty()) << loaded->skipped.front();
    EXPECT_EQ(loaded->step == n + 2, done.has_value()) << (done ? "" : done.error().message);
    if (network_.stale_count() > before) {
      ++stale;
      ASSERT_FALSE(done);
      EXPECT_NE(done.error().message.find("Stale file handle"), std::string::npos) << done.error().message;
      EXPECT_NE(done.error().message.find(run_), std::string::npos) << done.error().message;
      EXPECT_NE(done.error().hint.find("another host"), std::string::npos) << done.error().hint;
    }
    for (const std::string& name : names(false))
      if (name != "step-000000001.g1") fs::remove_all(run_ + "/" + name);
    network_.forget();
    if (HasFailure()) return;
  }
  EXPECT_GT(stale, 0u);
}

TEST_P(NetworkSaves, ALoadWhoseFilesAnotherHostRemovesTakesTheOlderOneOrSaysWhy) {
  std::uint64_t fallen_back = 0;
  std::uint64_t failed = 0;
  for (const bool older : {true, false}) {
    for (std::uint64_t n = GetParam().first / 5;; n += 3) {
      fs::remove_all(run_);
      network_.forget();
      for (std::uint64_t step = older ? 1 : 2; step <= 2; ++step) ASSERT_TRUE(save_on("n1", step));
      network_.forget();
      std::string newest;
      for (const std::string& name : names(false)) newest = std::max(newest, name);
      const auto plan = std::make_shared<FaultPlan>();
      plan->count_only({"open", "read"});
      plan->call_at(n, [&] { EXPECT_TRUE(remove_tree(*network_.io("n2", ++last_pid_), run_ + "/" + newest)); });
      const std::uint64_t before = network_.stale_count();
      const auto loaded =
          load([&](std::size_t) { return make_fault_io(network_.io("n1", ++last_pid_), plan); }).front();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      if (plan->first_failed().empty()) break;
      if (loaded && loaded->step == 2) continue;
      const bool stale = network_.stale_count() > before;
      if (older) {
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(loaded->step, 1u);
        if (!stale) continue;
        ++fallen_back;
        ASSERT_FALSE(loaded->skipped.empty());
        EXPECT_NE(loaded->skipped.front().find(newest), std::string::npos) << loaded->skipped.front();
      } else {
        ASSERT_FALSE(loaded);
        EXPECT_NE(loaded.error().code, Errc::internal) << loaded.error().message;
        if (stale) ++failed;
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(fallen_back + failed, 0u);
}

}  // namespace
}  // namespace ckpt::test
