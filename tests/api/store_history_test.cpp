// Long random histories of one store on a disk in memory: saves, roll-backs, marks, readers, damage, policies, prunes,
// demotions, undeletes and purges, clocks that jump, and at random operations a failure or the power going off. After
// each step an oracle that keeps its own books (store_oracle.hpp) says whether anything is lost that must not be.
//
// CKPT_HISTORY_SEEDS=FROM-TO chooses the histories, CKPT_HISTORY_STEPS their length.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/undelete.hpp"
#include "api/store_oracle.hpp"
#include "catalog/entry_text.hpp"
#include "catalog/index/refresh.hpp"
#include "catalog/random_policy.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/store/run_directory.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

using catalog::Duration;
using catalog::kDay;
using catalog::kHour;
using catalog::kMinute;
using catalog::Mark;
using catalog::Policy;
using catalog::Time;
using Where = Known::Where;

struct Counts {
  std::uint64_t saves = 0, prunes = 0, trashed = 0, demoted = 0, purged = 0, undeletes = 0, faults = 0,
                power_losses = 0;
};

class StoreHistory {
 public:
  StoreHistory(unsigned seed, const TinyCheckpoints& tiny, Counts& counts)
      : random_(seed), tiny_(tiny), counts_(counts), comm_(Comm::solo()) {
    disk_.put(kOracleStore + "/.ckpt/inbox/none", "");
    auto database = catalog::Database::open(directory_.path() + "/catalog.sqlite", {});
    EXPECT_TRUE(database) << database.error().message;
    if (database) database_ = std::make_unique<catalog::Database>(*std::move(database));
  }

  void run_steps(int count) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      step();
    }
  }

 private:
  struct Run {
    std::uint64_t step = 0;
    std::uint64_t series = 0;
    std::optional<std::uint64_t> series_from{};
  };

  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  bool chance(unsigned percent) { return below(100) < percent; }

  Known* any(Where where) {
    std::vector<Known*> all;
    for (Known& one : oracle_.known)
      if (one.where == where) all.push_back(&one);
    return all.empty() ? nullptr : all[below(static_cast<unsigned>(all.size()))];
  }

  // --- one step: something is done, perhaps broken at some operation, and what is left is looked at ---

  void step() {
    now_ += kMinute * static_cast<int>(below(120));
    if (chance(3)) now_ += kDay;
    if (chance(3)) now_ -= kHour * static_cast<int>(below(30));
    plan_ = std::make_shared<FaultPlan>();
    const bool breaks = chance(45);
    const bool power_off = breaks && chance(60);
    if (breaks) {
      // Looking comes first and takes most operations; half of the breaks are among those that change something.
      const bool changing = chance(50);
      if (changing) plan_->count_only({"mkdir", "write", "fdatasync", "fsync directory", "rename", "unlink", "rmdir"});
      const std::uint64_t n = changing || chance(50) ? below(40) : below(400);
      if (power_off) {
        plan_->fail_from(n, Errc::io);
      } else if (chance(30)) {
        plan_->tear_once(n, Errc::no_space);
      } else {
        plan_->fail_once(n, chance(50) ? Errc::io : Errc::no_space, chance(30));
      }
    }
    io_ = make_fault_io(disk_.io(), plan_);
    stays_.clear();
    grace_ = {};
    deed_ = "nothing";
    const unsigned what = below(100);
    if (what < 34) {
      save();
    } else if (what < 56) {
      mark();
    } else if (what < 62) {
      read_or_let_go();
    } else if (what < 66) {
      damage_or_heal();
    } else if (what < 74) {
      bring_back();
    } else {
      prune();
    }
    if (testing::Test::HasFatalFailure()) return;
    io_.reset();
    if (is_broken()) ++counts_.faults;
    if (power_off) lose_power();
    SCOPED_TRACE(deed_ + (is_broken() ? ", broken at " + plan_->first_failed() : "") +
                 (power_off ? ", power lost" : ""));
    look(power_off || is_broken());
  }

  bool is_broken() const { return !plan_->first_failed().empty(); }

  void lose_power() {
    ++counts_.power_losses;
    MemoryDisk::PowerLoss loss;
    if (chance(50)) loss.name_operations = chance(50) ? MemoryDisk::kAllNames : below(4);
    if (chance(50)) loss.block_seed = 1 + below(1000);
    disk_.power_off(loss);
    for (Known& one : oracle_.known) one.reader.reset();
  }

  void look(bool broken) {
    std::string wrong = oracle_.look(disk_, now_, false, stays_, grace_);
    ASSERT_EQ(wrong, "") << "at once";
    const auto io = disk_.io();
    if (broken) {
      const auto trash = catalog::Deleter::open(*io, kOracleStore, std::chrono::steady_clock::now(), {});
      ASSERT_TRUE(trash) << trash.error().message;
    }
    wrong = oracle_.look(disk_, now_, true, stays_, grace_);
    ASSERT_EQ(wrong, "");
    nothing_strange();
    catalog_is_true(*io, broken);
  }

  /// No checkpoint that nobody committed.
  void nothing_strange() {
    std::set<std::string> names;
    for (const Known& one : oracle_.known)
      if (one.where == Where::live) names.insert(one.path() + "/");
    for (const std::string& path : disk_.tree()) {
      if (!path.starts_with(kOracleStore + "/r") || path.back() != '/') continue;
      const std::string name = base_name(path.substr(0, path.size() - 1));
      if (CheckpointName::parse(name)) {
        ASSERT_TRUE(names.contains(path)) << path;
      }
    }
  }

  /// What the index came to, step by step, is what the disk alone tells.
  void catalog_is_true(Io& io, bool broken) {
    ASSERT_TRUE(database_);
    unsure_ = unsure_ || broken;
    if (chance(40)) return;  // another time, with more to catch up with
    const catalog::Trust trust = unsure_ ? catalog::Trust::nothing_unseen : catalog::Trust::notes;
    const auto done = catalog::refresh(io, kOracleStore, *database_, other_tools(), trust, now_);
    ASSERT_TRUE(done) << done.error().message;
    unsure_ = false;
    auto anew = catalog::Database::in_memory();
    ASSERT_TRUE(anew);
    ASSERT_TRUE(catalog::refresh(io, kOracleStore, *anew, other_tools(), catalog::Trust::nothing, now_));
    ASSERT_EQ(catalog::dump(*database_), catalog::dump(*anew));
  }

  // --- what may be done ---

  void save() {
    const std::string run = chance(70) ? "r1" : "r2";
    Run& at = runs_[run];
    const Run before = at;
    if (at.step > 6 && chance(12)) {  // training goes on from an older step
      at.series_from = 1 + below(static_cast<unsigned>(at.step) - 1);
      at.step = *at.series_from;
      ++at.series;
    }
    at.step += chance(5) ? 0 : 1 + below(3);
    const TinyCheckpoints::Save save{
        .run_directory = kOracleStore + "/" + run,
        .step = at.step,
        .run = {.name = run, .series = at.series, .series_from = at.series == 0 ? std::nullopt : at.series_from},
        .created = universal::utc_text(std::chrono::nanoseconds(now_.time_since_epoch()).count()),
        .user = chance(50) ? std::vector<std::pair<std::string, std::string>>{{"metric.loss", std::to_string(below(9))}}
                           : std::vector<std::pair<std::string, std::string>>{},
        .number = ++saves_};
    deed_ = "save " + run + "@" + std::to_string(save.step);
    ++counts_.saves;
    Result<> made = make_directory(*io_, save.run_directory);
    const Result<std::string> name = made ? tiny_.save(*io_, save) : fail(made.error());
    if (!is_broken()) {
      ASSERT_TRUE(name) << name.error().message;
    }
    if (name) saved_ = *name;
    took_place(run, save, name, before);
  }

  /// A save that failed may have committed all the same; the power may go off after this, and take that back.
  void took_place(const std::string& run, const TinyCheckpoints::Save& save, const Result<std::string>& name,
                  const Run& before) {
    if (is_broken() && !name) {
      disk_.power_off();  // only what is durable counts
      for (Known& one : oracle_.known) one.reader.reset();
    }
    const std::string prefix = save.run_directory + "/" + step_text(save.step) + ".g";
    for (const std::string& path : disk_.tree()) {
      if (!path.starts_with(prefix) || path.back() != '/' || path.find('/', prefix.size()) != path.size() - 1) continue;
      Known one{.run = run,
                .name = base_name(path.substr(0, path.size() - 1)),
                .step = save.step,
                .series = save.run.series,
                .series_from = save.run.series_from,
                .created = now_,
                .id = TinyCheckpoints::id_of(save).hex()};
      const bool old = std::any_of(oracle_.known.begin(), oracle_.known.end(),
                                   [&](const Known& each) { return each.run == run && each.name == one.name; });
      if (old) continue;
      one.generation = CheckpointName::parse(one.name)->generation;
      one.files = tree_below(disk_, one.path());
      for (const auto& [file, bytes] : tiny_.data_of(save))
        ASSERT_EQ(one.files[file], bytes) << one.name << "/" << file;
      for (const Known& each : oracle_.known) {
        if (each.run == run) {
          ASSERT_GT(one.generation, each.generation) << "a generation was given twice";
        }
      }
      oracle_.known.push_back(std::move(one));
      return;
    }
    ASSERT_FALSE(name) << "saved, and it is not there";
    runs_[run] = before;
  }

  void mark() {
    Known* one = any(Where::live);
    if (one == nullptr || one->unreadable || one->marks_torn) return;
    const unsigned what = below(100);
    if (what < 6) {
      deed_ = "torn mark on " + one->name;
      const auto io = disk_.io();
      ASSERT_TRUE(make_directory(*io, one->path() + "/marks") &&
                  replace_file(*io, one->path() + "/marks/pin-0000000000000000.json", "{ torn"));
      one->marks_torn = unsure_ = true;
      return;
    }
    MarkRequest request{.store = kOracleStore, .checkpoint = one->id, .now = now_};
    Mark& mark = request.mark;
    mark.at = now_;
    if (what < 45) {
      mark = {.kind = Mark::Kind::verified, .at = now_, .value = chance(88) ? 1.0 : 0.0};
    } else if (what < 60) {
      mark = {.kind = Mark::Kind::pin, .name = "p"};
      if (chance(80)) mark.until = now_ + kHour * static_cast<int>(1 + below(40));
    } else if (what < 70) {
      mark = {.kind = Mark::Kind::pin, .name = "p"};
      request.remove = true;
    } else if (what < 85) {
      mark = {.kind = Mark::Kind::tag, .name = chance(50) ? "a" : "b"};
      request.remove = chance(30);
    } else {
      mark = {.kind = Mark::Kind::metric, .name = "loss", .value = chance(20) ? std::nan("") : below(9) / 2.0};
    }
    deed_ = std::string(request.remove ? "no " : "") + std::string(kind_name(mark.kind)) + " on " + one->name;
    const auto done = mark_checkpoint(*io_, request);
    if (!is_broken()) {
      ASSERT_TRUE(done) << done.error().message;
    }
    if (!done) {  // it may have taken effect all the same, or be lost with the power
      disk_.power_off();
      for (Known& each : oracle_.known) each.reader.reset();
    }
    take_mark(*one, request, done.has_value());
  }

  void take_mark(Known& one, const MarkRequest& request, bool told) {
    const auto io = disk_.io();
    const catalog::Marks marks = catalog::read_marks(*io, one.path() + "/marks");
    ASSERT_EQ(marks.unreadable, "");
    const Mark* seen = nullptr;
    for (const Mark& mark : marks.marks)
      if (mark.kind == request.mark.kind && mark.name == request.mark.name) seen = &mark;
    if (told) {
      ASSERT_EQ(seen != nullptr, !request.remove);
    }
    if (request.mark.kind == Mark::Kind::verified) {
      one.verified = seen != nullptr && seen->value == 1;
      one.known_damaged = seen != nullptr && seen->value != 1;
      if (told) {
        ASSERT_EQ(one.verified, request.mark.value == 1);
      }
    }
    if (request.mark.kind == Mark::Kind::pin) {
      one.pinned_for_good = seen != nullptr && !seen->until;
      one.pinned_until = seen == nullptr ? std::nullopt : seen->until;
    }
  }

  void read_or_let_go() {
    Known* one = any(chance(70) ? Where::live : Where::trash);
    if (one == nullptr) return;
    deed_ = "reader of " + one->name;
    const auto io = disk_.io();
    if (one->reader) {
      one->reader.reset();
    } else if (auto lock = io->lock(one->where == Where::live ? one->path() : one->trash_path(), LockMode::shared)) {
      one->reader = *std::move(lock);
    }
  }

  void damage_or_heal() {
    Known* one = any(Where::live);
    if (one == nullptr || one->reader) return;
    const auto io = disk_.io();
    const std::string manifest = one->path() + "/manifest.json";
    const std::string aside = one->path() + "/aside";
    unsure_ = true;
    if (one->unreadable) {
      deed_ = one->name + " can be read again";
      ASSERT_TRUE(io->remove_dir(manifest) && io->rename(aside, manifest, RenameMode::no_replace) &&
                  io->sync_dir(one->path()));
      one->unreadable = false;
    } else if (one->marks_torn) {
      deed_ = "the torn mark of " + one->name + " is gone";
      ASSERT_TRUE(io->unlink(one->path() + "/marks/pin-0000000000000000.json") && io->sync_dir(one->path() + "/marks"));
      one->marks_torn = false;
    } else if (chance(50)) {
      deed_ = one->name + " cannot be read";
      ASSERT_TRUE(io->rename(manifest, aside, RenameMode::no_replace) && io->make_dir(manifest) &&
                  io->sync_dir(one->path()));
      one->unreadable = true;
    } else if (!one->damaged && chance(40)) {
      deed_ = one->name + " is damaged";
      const std::string file = "shards/weights/00000-00000.safetensors";
      ASSERT_TRUE(one->files.contains(file));
      one->files[file].resize(one->files[file].size() - 1);
      disk_.put(one->path() + "/" + file, one->files[file]);
      one->damaged = true;
    }
  }

  void bring_back() {
    Known* one = any(chance(70) ? Where::trash : Where::live);
    if (one == nullptr || one->unreadable) return;
    const bool optimizer = one->where == Where::live;
    if (optimizer && (!one->demoted || !one->optimizer_kept)) return;
    deed_ = "undelete " + one->name + (optimizer ? "'s optimizer" : "");
    ++counts_.undeletes;
    const auto back =
        undelete(*io_, {.store = kOracleStore, .names = {one->run + "/" + one->name}, .now = now_, .by = "history"});
    if (is_broken() || one->reader) return;
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_EQ(back->restored.size(), 1U) << deed_ << ": " << back->refused.front().second;
    oracle_.look(disk_, now_, true, {}, {});
    ASSERT_EQ(one->where, Where::live) << deed_;
    if (optimizer) {
      ASSERT_FALSE(one->demoted) << deed_;
    }
  }

  Policy random_policy() {
    const auto gen = rc::gen::exec([] { return catalog::any_policy(); });
    Policy policy = gen(rc::Random(random_()), 100).value();
    if (policy.pressure.max_size) policy.pressure.max_size = catalog::Amount{.bytes = std::uint64_t{below(400)} << 10};
    policy.pressure.min_free.reset();
    policy.pressure.headroom.reset();
    policy.trash.purge_early_when_free_below.reset();
    return policy;
  }

  void prune() {
    const Policy policy = random_policy();
    disk_.put(kOracleStore + "/ckpt.toml", policy_text(policy));
    PruneRequest request{
        .store = kOracleStore, .approved = chance(80), .include_damaged = chance(25), .carries_out = true, .now = now_};
    if (chance(10)) request.drop_series.push_back(below(3));
    deed_ = "prune";
    ++counts_.prunes;
    grace_ = policy.trash.ttl;
    stays_ = oracle_.must_stay(now_, grace_, request.include_damaged,
                               {request.drop_series.begin(), request.drop_series.end()});
    Session session{.io = *io_, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    const auto plan = plan_prune(session, request);
    if (!is_broken() && !plan) {
      ASSERT_EQ(plan.error().code, Errc::usage) << plan.error().message;
    }
    if (!plan) return;
    const auto report = carry_out(session, *plan, {.now = now_, .by = "history"});
    if (!is_broken()) {
      ASSERT_TRUE(report) << report.error().message;
    }
    if (!report) return;
    counts_.trashed += report->trashed;
    counts_.demoted += report->demoted;
    counts_.purged += report->purged.gone.size();
  }

  std::mt19937 random_;
  const TinyCheckpoints& tiny_;
  Counts& counts_;
  std::unique_ptr<Comm> comm_;
  TempDir directory_{memory_temp_dir()};
  std::unique_ptr<catalog::Database> database_{};
  MemoryDisk disk_{{.whole_renames = true}};
  StoreOracle oracle_{};
  Time now_{std::chrono::sys_days{std::chrono::year{2026} / 1 / 1}};
  std::map<std::string, Run> runs_{};
  std::uint64_t saves_ = 0;
  std::string saved_{};
  bool unsure_ = false;  // something may have changed that nobody left a note of

  // of this step
  std::shared_ptr<FaultPlan> plan_{};
  std::unique_ptr<Io> io_{};
  std::set<const Known*> stays_{};
  Duration grace_{};
  std::string deed_{};
};

struct Span {
  unsigned begin = 1;
  unsigned end = 6;
};

Span seeds() {
  Span out;
  const char* words = std::getenv("CKPT_HISTORY_SEEDS");
  if (words != nullptr && std::sscanf(words, "%u-%u", &out.begin, &out.end) == 2) ++out.end;
  return out;
}

int steps() {
  const char* words = std::getenv("CKPT_HISTORY_STEPS");
  return words == nullptr ? 250 : std::atoi(words);
}

TEST(StoreHistory, NothingProtectedIsEverLostWhateverFails) {
  const TinyCheckpoints tiny;
  Counts counts;
  const Span span = seeds();
  for (unsigned seed = span.begin; seed < span.end && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreHistory(seed, tiny, counts).run_steps(steps());
  }
  std::printf(
      "seeds %u-%u of %d steps: %lu saves, %lu prunes (%lu trashed, %lu demoted, %lu purged), %lu undeletes; %lu "
      "broken, %lu power losses\n",
      span.begin, span.end - 1, steps(), counts.saves, counts.prunes, counts.trashed, counts.demoted, counts.purged,
      counts.undeletes, counts.faults, counts.power_losses);
  EXPECT_GT(counts.trashed, 20U);
  EXPECT_GT(counts.demoted, 10U);
}

}  // namespace
}  // namespace ckpt::test
