// What happens between the plan and its carrying out, and what a store remembers of its policies.
#include "api/catalog/prune.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "catalog/scan/marks.hpp"
#include "catalog/store_builder.hpp"
#include "engine/store/inbox.hpp"
#include "support/fault_io.hpp"

namespace ckpt {
namespace {

using catalog::Mark;
using catalog::Time;

const Time kNow{std::chrono::sys_days{std::chrono::year{2026} / 2 / 1}};

class Prune : public testing::Test {
 protected:
  Prune() : comm_(Comm::solo()) {
    for (std::uint64_t step = 1; step <= 4; ++step) put(step);
  }

  void put(std::uint64_t step) { store_.put("r", step, step, {.weights_bytes = 0, .optim_bytes = 0}); }
  std::string path(std::uint64_t step) const {
    return store_.path() + "/r/" + CheckpointName{.step = step, .generation = step}.text();
  }
  bool is_there(std::uint64_t step) const { return std::filesystem::exists(path(step) + "/manifest.json"); }

  PruneRequest request(const std::string& last = "3") const {
    return {
        .store = store_.path(), .policy = {.flags = {{"keep-last", last}, {"purge-early-below", "0"}}}, .now = kNow};
  }
  PrunePlan planned(const PruneRequest& request) {
    Session session{.io = store_.io(), .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    auto plan = plan_prune(session, request);
    EXPECT_TRUE(plan) << plan.error().message;
    return plan ? *std::move(plan) : PrunePlan{};
  }
  PruneReport carried_out(const PrunePlan& plan) {
    Session session{.io = store_.io(), .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    auto report = carry_out(session, plan, {.now = kNow, .by = "test"});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *std::move(report) : PruneReport{};
  }

  test::StoreBuilder store_{};
  std::unique_ptr<Comm> comm_;
};

TEST_F(Prune, DeletesTheOldestOfFour) {
  const PruneReport report = carried_out(planned(request()));
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.trashed, 1U);
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(2));
}

TEST_F(Prune, WhatAJobHasLoadedLastStaysUnlessThePolicySaysOtherwise) {
  const auto loaded = [this](std::uint64_t step, int minute) {
    const Mark mark{.kind = Mark::Kind::restored, .at = kNow - std::chrono::minutes(minute)};
    ASSERT_TRUE(catalog::write_mark(store_.io(), path(step) + "/marks", mark));
    drop_note(store_.io(), parent_path(path(step)), base_name(path(step)), "restored " + std::to_string(minute));
  };
  const auto kept = [this] {
    std::vector<std::uint64_t> out;
    const PrunePlan plan = planned(request("1"));
    for (const auto& part : plan.parts)
      for (std::size_t i = 0; i < part.entries.size(); ++i)
        if (part.retention.decisions[i].action == catalog::Action::keep) out.push_back(part.checkpoints[i].step);
    std::ranges::sort(out);
    return out;
  };
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{4}));
  loaded(3, 9);
  loaded(1, 5);
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{1, 4}));
  loaded(3, 2);  // once more
  EXPECT_EQ(kept(), (std::vector<std::uint64_t>{3, 4}));
}

TEST_F(Prune, WhatWasPinnedTaggedReplacedOrReferredToSinceThePlanStays) {
  const auto mark = [this](Mark::Kind kind, const std::string& name) {
    EXPECT_TRUE(catalog::write_mark(store_.io(), path(1) + "/marks", {.kind = kind, .name = name}));
  };
  const std::vector<std::function<void()>> changes{
      [&] { mark(Mark::Kind::pin, "p"); },
      [&] { mark(Mark::Kind::tag, "release"); },
      [&] { mark(Mark::Kind::reference, std::string(32, 'a')); },
      [&] { test::write_file(path(1) + "/marks/pin-0000000000000000.json", "{ torn"); },
      [&] {
        std::filesystem::remove_all(path(1));
        put(1);
      },
  };
  for (const auto& change : changes) {
    std::filesystem::remove_all(path(1));
    put(1);
    const PrunePlan plan = planned(request());
    ASSERT_EQ(plan.trash_count, 1U);
    change();
    const PruneReport report = carried_out(plan);
    EXPECT_FALSE(report.complete);
    ASSERT_EQ(report.steps.size(), 1U);
    EXPECT_EQ(report.steps[0].kept_because, "changed since the plan was made");
    EXPECT_TRUE(is_there(1));
  }
}

TEST_F(Prune, WhatATrackerOrALinkNamesSinceThePlanStays) {
  namespace fs = std::filesystem;
  const std::string run = store_.path() + "/r/";
  const std::string name = CheckpointName{.step = 1, .generation = 1}.text();
  struct Case {
    std::string what;
    std::function<void()> made;
    std::function<void()> undone;
  };
  const std::vector<Case> cases{
      {"latest", [&] { test::write_file(run + "latest", name + "\n"); }, [&] { fs::remove(run + "latest"); }},
      {"by number", [&] { test::write_file(run + "latest_checkpointed_iteration.txt", "1"); },
       [&] { fs::remove(run + "latest_checkpointed_iteration.txt"); }},
      {"link", [&] { fs::create_directory_symlink(name, run + "best"); }, [&] { fs::remove(run + "best"); }},
      {"link into it", [&] { fs::create_symlink(name + "/manifest.json", run + "m"); }, [&] { fs::remove(run + "m"); }},
      {"link of the store", [&] { fs::create_directory_symlink("r/" + name, store_.path() + "/best"); },
       [&] { fs::remove(store_.path() + "/best"); }},
      {"unreadable", [&] { test::write_file(run + "latest", std::string(5000, 'x')); },
       [&] { fs::remove(run + "latest"); }},
  };
  for (const Case& each : cases) {
    const PrunePlan plan = planned(request());
    ASSERT_EQ(plan.trash_count, 1U) << each.what;
    each.made();
    const PruneReport report = carried_out(plan);
    EXPECT_FALSE(report.complete) << each.what;
    ASSERT_EQ(report.steps.size(), 1U) << each.what;
    EXPECT_NE(report.steps[0].kept_because.find("named since the plan"), std::string::npos)
        << each.what << ": " << report.steps[0].kept_because;
    EXPECT_TRUE(is_there(1)) << each.what;
    each.undone();
  }
  EXPECT_TRUE(carried_out(planned(request())).complete);
}

/// Between two deletions of one plan.
TEST_F(Prune, WhatIsNamedWhileOthersAreDeletedStays) {
  PruneRequest approved = request("1");
  approved.approved = true;
  const PrunePlan plan = planned(approved);
  ASSERT_EQ(plan.trash_count, 3U);
  const auto faults = std::make_shared<FaultPlan>();
  faults->count_only({"rename"});
  std::uint64_t named = 0;  // one that is not being deleted yet
  faults->call_at(0, [&] {
    const auto name = [](std::uint64_t step) { return CheckpointName{.step = step, .generation = step}.text(); };
    named = faults->first_failed().find(name(2)) == std::string::npos ? 2 : 1;
    test::write_file(store_.path() + "/r/latest", name(named));
  });
  auto inner = store_.io().new_instance();
  ASSERT_TRUE(inner);
  const auto io = make_fault_io(*std::move(inner), faults);
  Session session{.io = *io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
  const auto report = carry_out(session, plan, {.now = kNow, .by = "test"});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_NE(named, 0U) << "nothing was renamed";
  EXPECT_EQ(report->trashed, 2U);
  EXPECT_TRUE(is_there(named)) << named;
}

TEST_F(Prune, WhatADeletionRestsOnIsCheckedAndDoesNotCountWhereItIsDamaged) {
  ASSERT_EQ(planned(request()).trash_count, 1U);
  std::filesystem::remove(path(3) + "/index/manifest.json");
  for (const bool carries_out : {false, true}) {
    PruneRequest again = request();
    again.carries_out = carries_out;
    const PrunePlan plan = planned(again);
    EXPECT_EQ(plan.trash_count, 0U);
    EXPECT_EQ(plan.warnings.size(), 1U);
  }
}

TEST_F(Prune, WhatStaysForItsOwnSakeAloneIsNotChecked) {
  std::filesystem::remove(path(3) + "/index/manifest.json");
  PruneRequest own_sake = request();
  own_sake.policy.flags = {{"keep-last", "1"}, {"keep-every", "3"}};
  const PrunePlan plan = planned(own_sake);
  EXPECT_EQ(plan.trash_count, 2U);
  EXPECT_TRUE(plan.warnings.empty());
}

TEST_F(Prune, APlanThatIsOnlyShownLooksIntoABoundedNumberAndTellsWhatIsLeft) {
  std::filesystem::remove(path(2) + "/index/manifest.json");
  PruneRequest shown = request();
  shown.most_looked_into = 2;  // the newest two are whole
  PrunePlan plan = planned(shown);
  EXPECT_EQ(plan.trash_count, 1U);
  ASSERT_EQ(plan.warnings.size(), 2U);
  EXPECT_NE(plan.warnings[0].find("links in 2 checkpoints were not followed"), std::string::npos) << plan.warnings[0];
  EXPECT_NE(plan.warnings[1].find("1 kept checkpoints that justify deletions were not checked"), std::string::npos)
      << plan.warnings[1];
  shown.most_looked_into = 3;
  plan = planned(shown);
  EXPECT_EQ(plan.trash_count, 0U) << "the last three that are whole are all that there are";
  shown.most_looked_into = 0;
  shown.carries_out = true;
  plan = planned(shown);
  EXPECT_EQ(plan.trash_count, 0U) << "whoever deletes looks into all";
}

TEST_F(Prune, AStoreWhoseCatalogCannotBeUsedIsPrunedAllTheSame) {
  planned(request());
  const std::string file = store_.path() + "/.ckpt/catalog.sqlite";
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  const PrunePlan plan = planned(request());
  EXPECT_FALSE(plan.warnings.empty());
  EXPECT_EQ(plan.trash_count, 1U);
  EXPECT_TRUE(carried_out(plan).complete);
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(2));
}

TEST_F(Prune, WhatTheCatalogWasNotToldOfIsSeenBeforeAnythingGoes) {
  planned(request());
  const auto known = planned(request("2"));
  ASSERT_EQ(known.trash_count, 2U);
  const auto later = std::filesystem::last_write_time(store_.path() + "/r");
  EXPECT_TRUE(catalog::write_mark(store_.io(), path(4) + "/marks", {.kind = Mark::Kind::verified, .value = 0}));
  std::filesystem::last_write_time(store_.path() + "/r", later);
  PruneRequest shown = request("2");
  shown.carries_out = false;  // by the catalog, which believes that 4 is whole
  const PrunePlan plan = planned(shown);
  EXPECT_EQ(plan.trash_count, 1U) << "2 and 3 are the last two that are whole";
}

TEST_F(Prune, NothingIsUnlinkedThroughALinkThatCameBetween) {
  PruneRequest at_once = request();
  at_once.policy.flags.emplace_back("grace", "0");
  const PrunePlan plan = planned(at_once);
  std::filesystem::rename(path(1), store_.path() + "/elsewhere");
  std::filesystem::create_directory_symlink(store_.path() + "/elsewhere", path(1));
  const PruneReport report = carried_out(plan);
  EXPECT_FALSE(report.complete);
  EXPECT_TRUE(std::filesystem::exists(store_.path() + "/elsewhere/manifest.json"));
}

TEST_F(Prune, WhatVanishesMeanwhileIsPassedOver) {
  const PrunePlan plan = planned(request());
  std::filesystem::remove_all(path(1));
  const PruneReport report = carried_out(plan);
  EXPECT_EQ(report.trashed, 0U);
  EXPECT_TRUE(report.complete);
}

TEST_F(Prune, AStopEndsThePlanAndTellsNothingOfWhatWasNotLookedAt) {
  std::atomic<bool> stop{true};
  Session session{.io = store_.io(), .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31, .stop = &stop};
  for (const bool carries_out : {false, true}) {
    PruneRequest again = request();
    again.carries_out = carries_out;
    const auto plan = plan_prune(session, again);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Errc::interrupted);
  }
  const auto report = carry_out(session, planned(request()), {.now = kNow, .by = "test"});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::interrupted);
  EXPECT_TRUE(is_there(1));
}

TEST_F(Prune, AStopBetweenTwoDeletionsLeavesTheOthersAndTellsSo) {
  PruneRequest approved = request("1");
  approved.approved = true;
  const PrunePlan plan = planned(approved);
  ASSERT_EQ(plan.trash_count, 3U);
  std::atomic<bool> stop{false};
  auto inner = store_.io().new_instance();
  ASSERT_TRUE(inner);
  const auto faults = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(*std::move(inner), faults);
  const auto stop_at_the_first = [&] { stop = std::filesystem::exists(store_.path() + "/.ckpt/trash/r"); };
  faults->count_only({"rename"});
  faults->call_at(0, stop_at_the_first);
  Session session{.io = *io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31, .stop = &stop};
  const auto report = carry_out(session, plan, {.now = kNow, .by = "test"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->stopped);
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->trashed, 1U);
  EXPECT_EQ(report->steps.size(), 1U);
  EXPECT_EQ(is_there(1) + is_there(2) + is_there(3) + is_there(4), 3);
  EXPECT_EQ(carried_out(planned(approved)).trashed, 2U) << "the rest goes with the next one";
}

TEST_F(Prune, APolicyIsNewUntilItWasCarriedOutAndAgainWhenItIsChanged) {
  EXPECT_TRUE(planned(request("1")).aborted);
  PruneRequest approved = request("1");
  approved.approved = true;
  carried_out(planned(approved));
  EXPECT_TRUE(is_there(4));
  EXPECT_FALSE(is_there(3));
  for (std::uint64_t step = 5; step <= 8; ++step) put(step);
  EXPECT_FALSE(planned(request("1")).aborted);
  EXPECT_TRUE(planned(request("2")).aborted);
  PruneRequest one_run = request("1");
  one_run.runs = {"r*"};
  EXPECT_TRUE(planned(one_run).aborted) << "it was never asked for these runs";
}

TEST_F(Prune, ATornMemoryOfPoliciesMakesThemNew) {
  PruneRequest approved = request("1");
  approved.approved = true;
  carried_out(planned(approved));
  put(5);
  put(6);
  test::write_file(store_.path() + "/.ckpt/policies.json", "{");
  EXPECT_TRUE(planned(request("1")).parts.front().first_run);
}

}  // namespace
}  // namespace ckpt
