// Random histories of a store, random policies, readers and pins, on a real directory: nothing that the floor protects
// is ever deleted, nothing is lost, and what is deleted is what the plan said. What must stay is kept here by hand, as
// the history goes, and never asked of the store.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"
#include "api/catalog/remove.hpp"
#include "api/catalog/undelete.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/utc.hpp"
#include "catalog/store_builder.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

using catalog::Action;
using catalog::Mark;
using catalog::Time;

/// What the test itself knows of a checkpoint.
struct Known {
  std::string run;
  std::string path;
  std::string name;
  std::uint64_t step = 0;
  std::uint64_t generation = 0;
  std::uint64_t series = 0;
  std::uint64_t series_from = 0;  // of series > 0
  bool verified = false;
  bool marks_torn = false;
  std::optional<Time> pinned_until{};
  std::unique_ptr<HeldLock> reader{};
  enum class Where : std::uint8_t { live, trash, gone } where = Where::live;
  Time deleted_at{};
  Time purge_at{};
  Time kept_until{};  ///< after it was restored
};

class History {
 public:
  explicit History(unsigned seed) : random_(seed), comm_(Comm::solo()) {}

  void run_steps(int count) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      now_ += std::chrono::minutes(below(90));
      const unsigned what = below(100);
      if (what < 45) {
        save();
      } else if (what < 55) {
        mark();
      } else if (what < 63) {
        read_or_let_go();
      } else if (what < 68) {
        bring_back();
      } else if (what < 74) {
        remove();
      } else {
        prune();
      }
    }
  }

 private:
  using Where = Known::Where;

  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  bool chance(unsigned percent) { return below(100) < percent; }
  Session session() { return {.io = store_.io(), .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31}; }

  Known* any(Where where) {
    std::vector<Known*> all;
    for (Known& one : known_) {
      if (one.where == where) all.push_back(&one);
    }
    return all.empty() ? nullptr : all[below(static_cast<unsigned>(all.size()))];
  }

  void save() {
    const std::string run = chance(70) ? "a" : "b";
    auto& [step, series, series_from] = runs_[run];
    if (step > 6 && chance(8)) {  // training goes on from an older step
      series_from = 1 + below(static_cast<unsigned>(step) - 1);
      step = series_from;
      ++series;
    }
    step += 1 + below(3);
    std::uint64_t generation = 1;
    for (const Known& one : known_) {
      if (one.run == run) generation = std::max(generation, one.generation + 1);
    }
    const auto next = next_generation(store_.io(), store_.path() + "/" + run);
    ASSERT_TRUE(next || known_.empty());
    if (next) {
      ASSERT_EQ(*next, generation) << "a number was given twice";
    }
    test::StoreBuilder::Options options{.series = series, .weights_bytes = 0, .optim_bytes = 0};
    if (series > 0) options.series_from = series_from;
    options.created = catalog::time_text(now_).substr(0, 23) + "000000Z";
    Known one{.run = run, .step = step, .generation = generation, .series = series, .series_from = series_from};
    one.path = store_.put(run, step, generation, options);
    one.name = std::filesystem::path(one.path).filename();
    known_.push_back(std::move(one));
  }

  void mark() {
    Known* one = any(Where::live);
    if (one == nullptr) return;
    const std::string marks = one->path + "/marks";
    if (chance(15)) {
      std::filesystem::create_directories(marks);
      test::write_file(marks + "/pin-0000000000000000.json", "{ torn");
      one->marks_torn = true;
    } else if (chance(60)) {
      ASSERT_TRUE(catalog::write_mark(store_.io(), marks, {.kind = Mark::Kind::verified, .at = now_, .value = 1}));
      one->verified = true;
    } else {
      const Time until = now_ + std::chrono::hours(1 + below(40));
      ASSERT_TRUE(catalog::write_mark(store_.io(), marks, {.kind = Mark::Kind::pin, .name = "p", .until = until}));
      one->pinned_until = until;
    }
  }

  void read_or_let_go() {
    Known* one = any(Where::live);
    if (one == nullptr) return;
    if (one->reader) {
      one->reader.reset();
    } else if (auto lock = store_.io().lock(one->path, LockMode::shared)) {
      one->reader = *std::move(lock);
    }
  }

  void bring_back() {
    Known* one = any(Where::trash);
    if (one == nullptr) return;
    const auto back = undelete(
        store_.io(), {.store = store_.path(), .names = {one->run + "/" + one->name}, .now = now_, .by = "test"});
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_EQ(back->restored.size(), 1U);
    one->where = Where::live;
    one->kept_until = now_ + (one->purge_at - one->deleted_at);
  }

  /// By name: what the floor protects is refused, and nothing else changes.
  void remove() {
    Known* one = any(Where::live);
    if (one == nullptr) return;
    const bool stays = must_stay(false).contains(one);
    Session here = session();
    const auto report = remove_checkpoints(
        here, {.store = store_.path(), .names = {one->run + "/" + one->name}, .now = now_, .by = "test"});
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_EQ(report->removals.size(), 1U);
    const std::string& refused = report->removals.front().refused;
    if (stays) {
      ASSERT_NE(refused, "") << one->name << " was protected";
    }
    ++(refused.empty() ? removed_ : refused_);
    if (refused.empty()) {
      one->where = Where::trash;
      one->deleted_at = now_;
      one->purge_at = report->removals.front().kept_until;
    }
    for (const Known& other : known_) {
      const bool live = std::filesystem::exists(other.path + "/manifest.json");
      ASSERT_EQ(live, other.where == Where::live) << other.name;
    }
  }

  /// A later series began from an earlier step, be its checkpoints still there or not.
  bool superseded(const Known& one) const {
    for (const Known& other : known_) {
      if (other.run == one.run && other.series > one.series && other.series_from < one.step) return true;
    }
    return false;
  }

  /// Of each run: the newest verified one that counts, else the newest. `with_restored`: for a policy, not by name.
  std::set<const Known*> must_stay(bool with_restored = true) const {
    std::set<const Known*> out;
    std::map<std::string, const Known*> newest;
    std::map<std::string, const Known*> newest_verified;
    for (const Known& one : known_) {
      if (one.where != Where::live) continue;
      const bool pinned = one.pinned_until && *one.pinned_until > now_;
      const bool restored = with_restored && one.kept_until > now_;
      if (pinned || one.marks_torn || one.reader || restored) out.insert(&one);
      if (superseded(one)) continue;
      newest[one.run] = &one;  // in the order of their generations
      if (one.verified) newest_verified[one.run] = &one;
    }
    for (const auto& [run, one] : newest) out.insert(newest_verified.contains(run) ? newest_verified[run] : one);
    return out;
  }

  PolicyWords any_policy() {
    PolicyWords out;
    const std::vector<std::pair<std::string, unsigned>> rules{
        {"keep-last", 4}, {"keep-first", 3}, {"keep-every", 9}, {"keep-hourly", 5}, {"keep-daily", 3}};
    for (const auto& [flag, most] : rules) {
      if (chance(35)) out.flags.emplace_back(flag, std::to_string(1 + below(most)));
    }
    if (chance(20)) out.flags.emplace_back("keep-within", std::to_string(1 + below(9)) + "h");
    if (out.flags.empty()) out.flags.emplace_back("keep-last", "1");
    if (chance(20)) out.flags.emplace_back("max-size", std::to_string(below(9000)));
    out.flags.emplace_back("grace", chance(30) ? "0" : std::to_string(1 + below(8)) + "h");
    out.flags.emplace_back("purge-early-below", "0");  // the disk under the tests may be nearly full
    return out;
  }

  void prune() {
    const std::set<const Known*> stays = must_stay();
    Session here = session();
    const bool approved = chance(80);
    const PruneRequest request{.store = store_.path(),
                               .policy = any_policy(),
                               .approved = approved,
                               .include_damaged = chance(30),
                               .carries_out = true,
                               .now = now_};
    const auto plan = plan_prune(here, request);
    ASSERT_TRUE(plan) << plan.error().message;
    std::map<std::string, Time> planned;  // path -> when it may be purged
    for (const PrunePart& part : plan->parts) {
      for (std::size_t i = 0; i < part.entries.size(); ++i) {
        const bool goes = part.retention.decisions[i].action == Action::trash && !part.retention.aborted;
        if (goes) planned[part.entries[i].path(plan->store)] = now_ + part.policy.trash.ttl;
      }
    }
    if (!approved && plan->parts.front().first_run) {
      std::size_t live = 0;
      for (const Known& one : known_) live += one.where == Where::live ? 1U : 0U;
      ASSERT_LE(planned.size() * 2, live) << "more than half at the first run, and nobody approved";
    }
    const auto report = carry_out(here, *plan, {.now = now_, .by = "test"});
    ASSERT_TRUE(report) << report.error().message;
    ++prunes_;
    trashed_ += report->trashed;
    for (Known& one : known_) check(one, planned, stays.contains(&one));
  }

  void check(Known& one, const std::map<std::string, Time>& planned, bool stays) {
    const bool live = std::filesystem::exists(one.path + "/manifest.json");
    const bool trash =
        std::filesystem::exists(store_.path() + "/.ckpt/trash/" + one.run + "/" + one.name + "/manifest.json");
    const std::string what = one.run + "/" + one.name;
    if (one.where == Where::live) {
      const bool goes = planned.contains(one.path) && !one.reader;
      if (stays) {
        ASSERT_TRUE(live) << what << " was protected";
      }
      ASSERT_EQ(live, !goes) << what;
      if (!live) one.where = Where::trash;
      if (!live) one.purge_at = planned.at(one.path);
      if (!live) one.deleted_at = now_;
    }
    if (one.where == Where::trash) {
      ASSERT_FALSE(live) << what;
      ASSERT_EQ(trash, one.purge_at > now_) << what << ": its grace";
      if (!trash) one.where = Where::gone;
    } else {
      ASSERT_FALSE(trash) << what;
    }
  }

 public:
  unsigned prunes_ = 0;
  std::uint64_t trashed_ = 0;
  unsigned removed_ = 0;
  unsigned refused_ = 0;

 private:
  struct Run {
    std::uint64_t step = 0;
    std::uint64_t series = 0;
    std::uint64_t series_from = 0;
  };

  std::mt19937 random_;
  std::unique_ptr<Comm> comm_;
  test::StoreBuilder store_{};
  Time now_{std::chrono::sys_days{std::chrono::year{2026} / 1 / 1}};
  std::map<std::string, Run> runs_;
  std::vector<Known> known_;
};

TEST(PruneProperty, NothingThatTheFloorProtectsIsEverDeleted) {
  unsigned prunes = 0;
  std::uint64_t trashed = 0;
  unsigned removed = 0;
  unsigned refused = 0;
  for (unsigned seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    history.run_steps(60);
    prunes += history.prunes_;
    trashed += history.trashed_;
    removed += history.removed_;
    refused += history.refused_;
    if (HasFailure()) return;
  }
  EXPECT_GT(prunes, 200U);
  EXPECT_GT(trashed, 100U);
  EXPECT_GT(removed, 10U);
  EXPECT_GT(refused, 10U);
}

}  // namespace
}  // namespace ckpt
