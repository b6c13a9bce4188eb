// A store on a file system whose locks do not reach other hosts, by two of them (simulated: support/network_io.hpp):
// prune beside a reader, repair of what was killed, what doctor says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"
#include "api/catalog/repair.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/undelete.hpp"
#include "api/doctor/store_facts.hpp"
#include "catalog/store_builder.hpp"
#include "convert/open_source.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/locks/claims.hpp"
#include "engine/locks/lease.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/publish/publish.hpp"
#include "support/fault_io.hpp"
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
    for (std::uint64_t step = 1; step <= 4; ++step) store_.put("r", step, step, {.weights_bytes = 0, .optim_bytes = 0});
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

TEST_F(NetworkStore, StatusCountsTheReadersOfOtherHosts) {
  const auto first = network_.io("n17", 4211);
  const auto second = network_.io("n17", 4212);
  const auto third = network_.io("n18");
  const auto own = network_.io("n2", 7);
  const auto io = network_.io("n2");
  const auto readers = [&] {
    const auto status = store_status(*io, store_.path(), "", kNow);
    EXPECT_TRUE(status) << status.error().message;
    return status ? status->readers : StoreReaders{};
  };
  EXPECT_EQ(readers().elsewhere + readers().here, 0u);
  network_.forget();
  const auto lease = Lease::take(*first, path(1), {});
  const auto same = Lease::take(*second, path(1), {});
  const auto other = Lease::take(*third, path(2), {});
  const auto here = Lease::take(*own, path(2), {});
  ASSERT_TRUE(lease && same && other && here);
  const auto turn = catalog::Deleter::open(*third, store_.path(), std::chrono::steady_clock::now(), {});
  ASSERT_TRUE(turn) << turn.error().message;
  network_.forget();
  StoreReaders now = readers();
  EXPECT_EQ(now.elsewhere, 3u);
  EXPECT_EQ(now.here, 1u);
  EXPECT_EQ(now.silent, 0u);
  EXPECT_EQ(now.hosts, (std::vector<std::string>{"n17", "n18"}));
  EXPECT_EQ(now.deleter, "host n18 pid 100");
  // Status only looks; what repair or prune saw is remembered.
  network_.kill("n17", 4211);
  network_.kill("n2", 7);
  ASSERT_TRUE(watch_claims(*io, store_.path()));
  network_.wait(minutes(2));
  second->beat();
  third->beat();
  now = readers();
  EXPECT_EQ(now.here, 0u) << "of its own host it is known at once";
  EXPECT_EQ(now.elsewhere, 3u);
  EXPECT_EQ(now.silent, 1u);
  network_.wait(minutes(8));
  EXPECT_EQ(readers().elsewhere, 2u) << "silent for ten minutes";
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
    return finding.text.find("the claim cannot be written") != std::string::npos;
  }));
}

/// The steps that a host's catalog holds, oldest first.
std::vector<std::uint64_t> listed(Io& io, const std::string& store) {
  const auto listing = list_catalog(io, {.store = store, .sort = CatalogQuery::Sort::oldest, .now = kNow});
  EXPECT_TRUE(listing) << listing.error().message;
  std::vector<std::uint64_t> out;
  if (!listing) return out;
  for (const catalog::Entry& entry : listing->entries) out.push_back(entry.checkpoint.step);
  return out;
}

TEST_F(NetworkStore, WhatOneHostDeletesTheOtherBringsBackAndBothListIt) {
  using Steps = std::vector<std::uint64_t>;
  const auto first = network_.io("n1");
  const auto second = network_.io("n2");
  EXPECT_EQ(listed(*first, store_.path()), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(listed(*second, store_.path()), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(pruned(*first).trashed, 2u);
  EXPECT_EQ(listed(*first, store_.path()), (Steps{3, 4})) << "its own deletions no host forgets";
  // The other one may remember the store as it was: it says so or works, and loses nothing.
  const UndeleteRequest back{.store = store_.path(), .names = {"r@1", "r@2"}, .now = kNow, .by = "test"};
  const auto early = undelete(*second, back);
  if (!early) {
    EXPECT_EQ(early.error().code, Errc::not_found) << early.error().message;
    network_.forget();
    const auto late = undelete(*second, back);
    ASSERT_TRUE(late) << late.error().message;
    EXPECT_TRUE(late->refused.empty()) << late->refused.front().second;
    EXPECT_EQ(late->restored.size(), 2u);
  }
  for (std::uint64_t step = 1; step <= 4; ++step) EXPECT_TRUE(is_there(step)) << step;
  EXPECT_EQ(listed(*second, store_.path()), (Steps{1, 2, 3, 4}));
  network_.forget();
  EXPECT_EQ(listed(*first, store_.path()), (Steps{1, 2, 3, 4}));
}

TEST_F(NetworkStore, APruneByAnOldListingNeverDeletesTheLast) {
  const auto late = network_.io("n2");
  EXPECT_EQ(listed(*late, store_.path()).size(), 4u);
  // Somebody on another host takes the newest two away; this host remembers that they are there.
  const auto other = network_.io("n1");
  ASSERT_TRUE(remove_tree(*other, path(3)));
  ASSERT_TRUE(remove_tree(*other, path(4)));
  Session session{.io = *late, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
  const auto plan = plan_prune(session, {.store = store_.path(),
                                         .policy = {.flags = {{"keep-last", "2"}, {"purge-early-below", "0"}}},
                                         .approved = true,
                                         .carries_out = true,
                                         .now = kNow});
  if (plan) static_cast<void>(carry_out(session, *plan, {.now = kNow, .by = "test"}));
  EXPECT_TRUE(is_there(1) && is_there(2));
}

/// Another host commits, deletes or brings back something at any operation of a refresh: what is listed is what was
/// there before or after it, and the next one is right.
TEST_F(NetworkStore, ARefreshWhileAnotherHostChangesTheStoreIsOldOrNew) {
  using Steps = std::vector<std::uint64_t>;
  for (std::uint64_t n = 0;; n += 2) {
    network_.forget();
    const auto plan = std::make_shared<FaultPlan>();
    const bool deletes = is_there(1);
    plan->call_at(n, [&] {
      const auto other = network_.io("n1");
      const std::string gone = path(1) + ".partial-0123456789abcdef0123456789abcdef";
      EXPECT_TRUE(deletes ? move_checkpoint(*other, path(1), gone) : move_checkpoint(*other, gone, path(1)));
    });
    const auto io = make_fault_io(network_.io("n2"), plan);
    const auto listing = list_catalog(
        *io, {.store = store_.path(), .sort = CatalogQuery::Sort::oldest, .rebuild = n % 4 == 0, .now = kNow});
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    ASSERT_TRUE(listing) << listing.error().message;
    if (plan->first_failed().empty()) break;
    EXPECT_GE(listing->entries.size(), 3u);
    for (const catalog::Entry& entry : listing->entries) EXPECT_NE(entry.checkpoint.state, catalog::State::corrupt);
    network_.forget();
    EXPECT_EQ(listed(*network_.io("n2"), store_.path()), deletes ? (Steps{2, 3, 4}) : (Steps{1, 2, 3, 4}));
    if (HasFailure()) return;
  }
}

TEST_F(NetworkStore, RepairSweepsAKilledSaveOnceNothingHasChangedForTenMinutes) {
  const std::string partial = store_.path() + "/r/step-000000009.partial-0123456789abcdef0123456789abcdef";
  fs::create_directories(partial + "/shards/weights");
  test::write_file(partial + "/shards/weights/00000-00000.safetensors", "x");
  const auto io = network_.io("n2");
  const auto swept = sweep_partials(*io, store_.path() + "/r");
  ASSERT_TRUE(swept);
  EXPECT_TRUE(swept->removed.empty()) << "a save leaves what may be another host's";
  EXPECT_FALSE(repaired(*io).items.at(0).done);
  network_.wait(minutes(9));
  test::write_file(partial + "/shards/weights/00000-00000.safetensors", "more");
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
  const auto facts = read_store_facts(session, store_.path(), kNow);
  ASSERT_TRUE(facts && *facts);
  EXPECT_EQ((*facts)->claims.count, 1U);
  EXPECT_NE((*facts)->claims.first.find("n17"), std::string::npos) << (*facts)->claims.first;
  const RepairReport report = repaired(*io);
  ASSERT_EQ(report.items.size(), 1U);
  EXPECT_EQ(report.items[0].defect, Defect::claim);
  EXPECT_TRUE(report.items[0].done) << report.items[0].kept_because;
  EXPECT_TRUE(repaired(*io).items.empty());
}

}  // namespace
}  // namespace ckpt
