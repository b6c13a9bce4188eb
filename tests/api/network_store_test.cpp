// A store on a file system whose locks do not reach other hosts, by two of them (simulated: support/network_io.hpp):
// prune beside a reader, repair of what was killed, what doctor says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "api/doctor/store_health.hpp"
#include "api/prune.hpp"
#include "api/repair.hpp"
#include "catalog/store_builder.hpp"
#include "convert/format.hpp"
#include "engine/claims.hpp"
#include "engine/publish.hpp"
#include "support/network_io.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using catalog::Time;
using std::chrono::minutes;

const Time kNow{std::chrono::sys_days{std::chrono::year{2026} / 2 / 1}};

class NetworkStore : public testing::Test {
 protected:
  NetworkStore() : comm_(Comm::solo()) {
    for (std::uint64_t step = 1; step <= 4; ++step) {
      const std::string at = store_.put("r", step, step, {.weights_bytes = 0, .optim_bytes = 0});
      fs::create_directories(at + "/index");
      fs::copy(at + "/manifest.json", at + "/index/manifest.json");
    }
    fs::create_directories(claims_path(store_.path()));
    test::write_file(claims_path(store_.path()) + "/ready", "");
  }
  std::string path(std::uint64_t step) const {
    return store_.path() + "/r/" + CheckpointName{.step = step, .generation = step}.text();
  }
  bool is_there(std::uint64_t step) const { return fs::exists(path(step) + "/manifest.json"); }

  PruneReport pruned(Io& io) {
    Session session{.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    const auto plan = plan_prune(session, {.store = store_.path(),
                                           .policy = {.flags = {{"keep-last", "2"}, {"purge-early-below", "0"}}},
                                           .approved = true,
                                           .carries_out = true,
                                           .now = kNow});
    EXPECT_TRUE(plan) << plan.error().message;
    if (!plan) return {};
    auto report = carry_out(session, *plan, {.now = kNow, .by = "test"});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *std::move(report) : PruneReport{};
  }
  RepairReport repaired(Io& io, bool apply = true) {
    Session session{.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    auto report = repair(session, {.path = store_.path(), .apply = apply, .by = "test", .clock = [] { return kNow; }});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *std::move(report) : RepairReport{};
  }

  test::StoreBuilder store_{};
  std::unique_ptr<Comm> comm_;
  NetworkDisk network_{[] { return *open_io(IoKind::threads); }, {.lost_answers = 2}};
};

TEST_F(NetworkStore, PruneKeepsWhatAnotherHostReadsAndSaysWho) {
  const auto reader = network_.io("n17", 4211);
  auto source = open_source(*reader, path(1), "", {});
  ASSERT_TRUE(source) << source.error().message;
  const auto io = network_.io("n2");
  const PruneReport report = pruned(*io);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.trashed, 1U);
  ASSERT_EQ(report.steps.size(), 2U);
  EXPECT_TRUE(std::ranges::any_of(
      report.steps, [](const PruneStep& step) { return step.kept_because == "being read: host n17 pid 4211"; }));
  EXPECT_TRUE(is_there(1));
  EXPECT_FALSE(is_there(2));
  source = fail(Errc::internal, "closed");
  EXPECT_EQ(pruned(*network_.io("n2", 2)).trashed, 1U);
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(3) && is_there(4));
}

TEST_F(NetworkStore, TheFirstPruneOfAStoreWaitsUntilAllReadersMustHaveClaimed) {
  fs::remove_all(claims_path(store_.path()));
  const auto io = network_.io("n2");
  const PruneReport report = pruned(*io);
  EXPECT_EQ(report.trashed, 0U);
  ASSERT_EQ(report.steps.size(), 2U);
  EXPECT_NE(report.steps[0].kept_because.find("10 minutes"), std::string::npos) << report.steps[0].kept_because;
  network_.wait(minutes(10));
  EXPECT_EQ(pruned(*network_.io("n2", 2)).trashed, 2U);
}

TEST_F(NetworkStore, AReaderThatMayNotWriteHereSaysThatItIsNotSeen) {
  fs::remove_all(claims_path(store_.path()));
  test::write_file(claims_path(store_.path()), "no directory");
  const auto io = network_.io("n1");
  const auto source = open_source(*io, path(1), "", {});
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_TRUE(std::ranges::any_of(source->map.findings, [](const Finding& finding) {
    return finding.text.find("no claim can be written") != std::string::npos;
  }));
}

TEST_F(NetworkStore, RepairSweepsAKilledSaveOnceNothingHasChangedForTenMinutes) {
  const std::string partial = store_.path() + "/r/step-000000009.partial-0123456789abcdef0123456789abcdef";
  fs::create_directories(partial + "/shards");
  test::write_file(partial + "/shards/x", "x");
  const auto io = network_.io("n2");
  std::vector<std::string> swept;
  ASSERT_TRUE(sweep_partials(*io, store_.path() + "/r", swept));
  EXPECT_TRUE(swept.empty()) << "a save leaves what may be another host's";
  EXPECT_FALSE(repaired(*io).items.at(0).done);
  network_.wait(minutes(9));
  test::write_file(partial + "/shards/x", "more");
  network_.wait(minutes(1));
  EXPECT_FALSE(repaired(*io).items.at(0).done) << "it was written meanwhile";
  EXPECT_TRUE(fs::exists(partial));
  network_.wait(minutes(10));
  EXPECT_TRUE(repaired(*network_.io("n2", 2)).items.at(0).done);
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(NetworkStore, RepairRemovesTheClaimOfAKilledReaderAndDoctorNamesIt) {
  const auto reader = network_.io("n17", 4211);
  auto source = open_source(*reader, path(1), "", {});
  ASSERT_TRUE(source);
  const auto io = network_.io("n2");
  EXPECT_TRUE(repaired(*io).items.empty());
  network_.kill("n17", 4211);
  source = fail(Errc::internal, "closed");
  network_.wait(minutes(5));
  ASSERT_EQ(repaired(*io).items.size(), 1U);
  EXPECT_FALSE(repaired(*io).items.at(0).done);
  network_.wait(minutes(5));
  Session session{.io = *io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
  const auto facts = look_at_store(session, store_.path(), kNow);
  ASSERT_TRUE(facts && *facts);
  EXPECT_EQ((*facts)->claims.count, 1U);
  EXPECT_TRUE(std::ranges::any_of(diagnose(**facts), [](const Diagnosis& one) {
    return one.about == "claims" && one.text.find("n17") != std::string::npos;
  }));
  const RepairReport report = repaired(*io);
  ASSERT_EQ(report.items.size(), 1U);
  EXPECT_EQ(report.items[0].defect, Defect::claim);
  EXPECT_TRUE(report.items[0].done) << report.items[0].kept_because;
  EXPECT_TRUE(repaired(*io).items.empty());
}

}  // namespace
}  // namespace ckpt
