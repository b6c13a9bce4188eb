#include "api/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "api/prune_policies.hpp"
#include "api/run/first_failure.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/protection.hpp"
#include "convert/foreign_names.hpp"
#include "engine/comm/agree_after.hpp"
#include "engine/comm/equal_on_all.hpp"
#include "engine/io/real_path.hpp"
#include "engine/run/run.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBuffers = 8;
constexpr auto kSaveTimeout = std::chrono::hours(1);

catalog::Time now() {
  return std::chrono::time_point_cast<catalog::Duration>(std::chrono::system_clock::now());
}

/// Of a copy in the local directory: pins and references hold there too.
Result<> check_marks(Io& io, const std::string& checkpoint) {
  return catalog::check_unprotected(io, checkpoint, catalog::marks_path(checkpoint, false), now());
}

}  // namespace

Result<std::unique_ptr<Run>> Run::open(Result<std::unique_ptr<Io>> io, std::unique_ptr<Comm> comm,
                                       const std::string& run_directory, Run::Options options) {
  std::unique_ptr<Run> run(new Run);
  run->options_ = std::move(options);
  // Saves follow no link below a store: what this run is called is decided once.
  run->run_directory_ = join_path(without_links(run_directory), "");
  if (!run->options_.local_directory.empty()) {
    run->options_.local_directory = join_path(run->options_.local_directory, "");
  }
  run->comm_ = std::move(comm);
  const Options& wanted = run->options_;
  run->schedule_.emplace(SaveSchedule::Options{.every_steps = wanted.every_steps,
                                               .every = wanted.every,
                                               .time_limit = wanted.time_limit,
                                               .optimal = wanted.optimal,
                                               .most_overhead = wanted.most_overhead,
                                               .mtbf_s = wanted.mtbf_s,
                                               .restart_s = wanted.restart_s,
                                               .by_store = !wanted.policy_store.empty(),
                                               .decides = run->comm_->is_root(),
                                               .clock = wanted.clock});
  CKPT_CHECK(run->agree_on_options());
  CKPT_CHECK(agree_after(*run->comm_, run->options_.patience, [&]() -> Result<> {
    if (base_name(run->run_directory_) == kPolicyFile || base_name(run->run_directory_) == kStoreDirectory)
      return fail(Errc::usage, run->run_directory_ + ": this name is reserved for the store; choose another run name");
    if (auto outside = check_in_no_checkpoint(run->run_directory_); !outside) return outside;
    CKPT_TRY(run->io_, std::move(io));
    CKPT_TRY(run->read_pool_, BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = kReadBuffers}));
    return run->comm_->is_root() ? run->read_rules() : Result<>();
  }));
  if (run->options_.catch_signals) run->signal_.emplace();
  auto log_failure = run->options_.log;
  if (!log_failure) {
    log_failure = first_failure_on_stderr([comm = run->comm_.get()] { return comm->is_root() || comm->is_lost(); });
  }
  CKPT_TRY(run->saver_, Saver::open(*run->io_, *run->comm_,
                                    {.run_directory = run->run_directory_,
                                     .local_directory = run->options_.local_directory,
                                     .drain_bytes_per_second = run->options_.drain_bytes_per_second,
                                     .local_keep = run->options_.local_keep,
                                     .foreign_names = foreign_names(),
                                     .check_removable = check_marks,
                                     .generator = "ckpt " CKPT_VERSION,
                                     .staging_bytes = run->options_.staging_bytes,
                                     .copy_threads = run->options_.copy_threads,
                                     .write_threads = run->options_.write_threads,
                                     .patience = run->options_.patience,
                                     .log = run->options_.log,
                                     .log_failure = std::move(log_failure)}));
  run->series_.emplace(run->run_directory_, run->options_.log);
  run->replica_load_.emplace(*run->comm_, ReplicaLoad::Options{.patience = run->options_.patience,
                                                               .replicas = run->options_.replicas,
                                                               .log = run->options_.log});
  run->exit_report_.emplace(run->run_directory_, run->comm_->is_root());
  return run;
}

/// Ranks whose options differ would call other collectives, or none, some time later. Collective; the first one.
Result<> Run::agree_on_options() {
  constexpr const char* kNames[] = {"every_steps", "max_overhead", "policy_store", "staging_memory (0 or not)"};
  const std::uint64_t words[] = {options_.every_steps, std::bit_cast<std::uint64_t>(options_.most_overhead),
                                 options_.policy_store.empty() ? 0U : 1U, options_.staging_bytes == 0 ? 0U : 1U};
  CKPT_TRY(const std::vector<bool> equal, equal_on_all(*comm_, deadline(), words));
  for (std::size_t i = 0; i < equal.size(); ++i) {
    if (equal[i]) continue;
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: ranks passed different values for {}", run_directory_, kNames[i]),
                 .hint = "pass the same options on every rank"});
  }
  return {};
}

Run::~Run() {
  if (!saver_) return;
  // Failures can only be logged here: callers that need them call close.
  if (auto ended = saver_->wait_all(kSaveTimeout); !ended) log(ended.error().message);
}

Result<> Run::close() {
  exit_report_.reset();
  return saver_->finish(kSaveTimeout);
}

Deadline Run::deadline() const {
  return comm_->now() + options_.patience;
}

void Run::log(const std::string& text) const {
  if (options_.log) options_.log(text);
}

void Run::set_model(Model model) {
  model_ = model;
  saver_->set_model(std::move(model));
}

/// [interval] of the store, if it decides.
Result<> Run::read_rules() {
  if (options_.policy_store.empty()) return {};
  CKPT_TRY(const auto rules,
           read_store_interval(*io_, options_.policy_store, run_in_store(options_.policy_store, run_directory_)));
  if (!rules) {
    return fail(Errc::usage,
                fmt::format("{}: its ckpt.toml has no [interval] for this run, so no rule says when to save",
                            options_.policy_store));
  }
  schedule_->set_rules(*rules);
  return {};
}

Result<bool> Run::should_save(std::uint64_t step) {
  const SaveSchedule::Vote mine = schedule_->vote(step, signal_ && signal_->requested());
  CKPT_TRY(const SaveSchedule::Vote votes, saver_->round(mine));
  return schedule_->answer(step, votes);
}

// --- saving ------------------------------------------------------------------------------------------------------

Result<> Run::begin(std::uint64_t step, const Result<>& mine) {
  Meta meta{.framework = options_.framework, .framework_version = options_.framework_version};
  schedule_->begin_save(step);
  last_step_ = step;
  std::function<Result<>(Saver::Description&)> prepare;
  if (comm_->is_root() || !mine) {
    prepare = [&](Saver::Description& description) -> Result<> {
      CKPT_CHECK(mine);
      if (!series_->is_decided_for(step)) {
        CKPT_TRY(const RunSeries now, series_of(*io_, run_directory_, near_directory()));
        series_->decide(now);
      }
      description.run = series_->series();
      return {};
    };
  }
  return saver_->begin({.step = step, .meta = std::move(meta)}, prepare);
}

Result<std::shared_ptr<PendingSave>> Run::commit(std::vector<std::pair<std::string, std::string>> user) {
  saver_->describe(std::move(user));
  const auto start = Clock::now();
  CKPT_TRY(auto pending, saver_->commit());
  exit_report_->add(last_step_, pending);
  schedule_->end_commit(pending, Clock::now() - start);
  if (options_.staging_bytes == 0) {
    auto ended = saver_->wait(pending, kSaveTimeout);
    if (!ended && (pending->resolved() || comm_->is_lost())) return fail(std::move(ended).error());
  }
  return pending;
}

// --- loading -----------------------------------------------------------------------------------------------------

Checkpoint::ReadOptions Run::read_options(bool partial) const {
  return {.model = &model_,
          .rank = static_cast<std::uint64_t>(comm_->rank()),
          .whole_leaves = options_.verify_all,
          .partial = partial,
          .workers = 1};
}

void Run::note_loaded(const Checkpoint& checkpoint, const RunSeries& at_load) {
  schedule_->resumed_at(checkpoint.step());
  series_->note_loaded({.id = checkpoint.map().id, .path = checkpoint.path(), .step = checkpoint.step()}, at_load);
}

Result<std::unique_ptr<Checkpoint>> Run::loaded_checkpoint(Io& io) const {
  const auto& loaded = series_->loaded();
  if (!loaded) return fail(Errc::usage, run_directory_ + ": no checkpoint was loaded yet");
  CKPT_TRY(auto checkpoint, Checkpoint::open(io, loaded->path));
  if (checkpoint->map().id != loaded->id)
    return fail(Errc::not_found, loaded->path + ": it is no longer the checkpoint that was loaded");
  return checkpoint;
}

/// Marks the checkpoint as loaded last, which proves that it loads, if the store can be written; not for a copy that
/// exists only in the local tier, nor a part of one. Collective; rank 0 marks.
Result<> Run::mark_restored(const Checkpoint& checkpoint, bool is_whole) {
  const auto mark = [&]() -> Result<> {
    const std::string name = base_name(checkpoint.path());
    if (checkpoint.path() != join_path(run_directory_, name)) return {};
    const catalog::Mark loaded{.kind = catalog::Mark::Kind::restored, .at = now()};
    const auto marked = catalog::write_mark(*io_, catalog::marks_path(checkpoint.path(), false), loaded,
                                            catalog::Holding::lease, foreign_names());
    if (marked)
      drop_note(*io_, run_directory_, name, fmt::format("restored {}", loaded.at->time_since_epoch().count()));
    return {};
  };
  std::function<Result<>()> work;
  if (comm_->is_root() && is_whole) work = mark;
  return agree_after(*comm_, options_.patience, work);
}

/// The local directory, if it holds complete checkpoints; with several nodes each has a part.
std::string Run::near_directory() const {
  return saver_->several_nodes() ? std::string() : options_.local_directory;
}

CheckpointChoice Run::new_choice(std::optional<std::uint64_t> step) const {
  return {*io_,
          *comm_,
          {.run_directory = run_directory_,
           .local_directory = near_directory(),
           .names_paths = !options_.local_directory.empty(),
           .step = step,
           .patience = options_.patience,
           .log = options_.log}};
}

/// Several nodes: completes undrained checkpoints in the run directory, before an older one counts as the newest.
/// Collective.
Result<> Run::finish_drains(std::vector<std::string>& skipped) {
  if (!saver_->several_nodes()) return {};
  auto drained = saver_->wait_all(kSaveTimeout);  // one that failed is tried again
  if (!drained && comm_->is_lost()) return drained;
  CKPT_TRY(skipped, saver_->drain_left(kSaveTimeout));
  return {};
}

Result<std::unique_ptr<Checkpoint>> Run::usable(std::optional<std::uint64_t> step, const Result<>& mine) {
  CKPT_CHECK(saver_->finish_round());
  std::vector<std::string> skipped;
  CKPT_CHECK(finish_drains(skipped));
  CheckpointChoice choice = new_choice(step);
  CKPT_CHECK(choice.list(mine));
  CKPT_TRY(auto checkpoint, choice.next(skipped));
  usable_path_ = checkpoint->path();
  at_usable_ = choice.listed();
  return checkpoint;
}

Result<> Run::loaded(const Checkpoint* checkpoint) {
  CKPT_CHECK(agree_after(*comm_, options_.patience, [&]() -> Result<> {
    if (checkpoint != nullptr && checkpoint->path() == usable_path_) return {};
    return fail({.code = Errc::usage,
                 .message = run_directory_ + ": the checkpoint is not the last one that the run returned",
                 .file = run_directory_});
  }));
  note_loaded(*checkpoint, at_usable_);
  return mark_restored(*checkpoint, true);
}

Result<std::vector<std::uint64_t>> Run::steps() {
  CKPT_CHECK(saver_->finish_round());
  CheckpointChoice choice = new_choice({});
  CKPT_CHECK(choice.list({}));
  std::set<std::uint64_t> seen;
  std::string packed;
  for (const RunCheckpoint& one : choice.listed().standing)
    if (seen.insert(one.name.step).second)
      packed.append(reinterpret_cast<const char*>(&one.name.step), sizeof one.name.step);
  CKPT_CHECK(comm_->broadcast(packed, deadline()));
  std::vector<std::uint64_t> out(packed.size() / sizeof(std::uint64_t));
  if (!out.empty()) std::memcpy(out.data(), packed.data(), out.size() * sizeof(std::uint64_t));
  return out;
}

Result<Run::Loaded> Run::load(std::span<const NamedRead> reads, bool partial, const Result<>& failed,
                              std::optional<std::uint64_t> step) {
  CKPT_CHECK(saver_->finish_round());
  Loaded loaded;
  CKPT_CHECK(finish_drains(loaded.skipped));
  CheckpointChoice choice = new_choice(step);
  CKPT_CHECK(choice.list(failed));
  CKPT_TRY(const ReplicaGroups groups, replica_load_->groups(model_));
  for (;;) {
    CKPT_TRY(const auto checkpoint, choice.next(loaded.skipped));
    CKPT_TRY(auto outcome, replica_load_->load(*checkpoint, reads, groups, read_options(partial), *io_, *read_pool_));
    if (!outcome.verdict) {
      CKPT_CHECK(choice.skip(checkpoint->path(), outcome.verdict.error(), loaded.skipped));
      continue;
    }
    loaded.step = checkpoint->step();
    loaded.report = std::move(outcome.report);
    note_loaded(*checkpoint, choice.listed());
    CKPT_CHECK(mark_restored(*checkpoint, loaded.report.missing.empty()));
    return loaded;
  }
}

}  // namespace ckpt
