#include "api/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>
#include <utility>

#include "api/catalog/prune_policies.hpp"
#include "api/run/first_failure.hpp"
#include "catalog/index/entry.hpp"
#include "catalog/index/marks.hpp"
#include "convert/foreign_names.hpp"
#include "engine/comm/agree_after.hpp"
#include "engine/comm/equal_on_all.hpp"
#include "engine/comm/heartbeat.hpp"
#include "engine/io/caught.hpp"
#include "engine/run/run.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/seal.hpp"
#include "loading/exchange.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBuffers = 8;
constexpr auto kNap = std::chrono::milliseconds(1);  // between beats that wait for other ranks
constexpr auto kSaveTimeout = std::chrono::hours(1);

/// Reasons why a checkpoint that opens must not be resumed from.
std::optional<Error> unusable(const Map& map, const std::string& path) {
  for (const Finding& finding : map.findings) {
    if (finding.severity < Severity::incomplete) continue;
    return Error{.code = finding.severity == Severity::incomplete ? Errc::incomplete : Errc::corrupt,
                 .message = fmt::format("{}: {}", path, finding.text),
                 .file = finding.file};
  }
  return std::nullopt;
}

/// Failures of one checkpoint, for which an older one may do.
bool is_lost_copy(Errc code) {
  const int exit = exit_code(code);
  return exit == exit_code(Errc::corrupt) || exit == exit_code(Errc::incomplete) || code == Errc::io ||
         code == Errc::changed;
}

Errc verdict_of(const Error& error) {
  return error.verdict.value_or(error.code);
}

}  // namespace

Result<std::unique_ptr<Run>> Run::open(Result<std::unique_ptr<Io>> io, std::unique_ptr<Comm> comm,
                                       const std::string& run_directory, Run::Options options) {
  std::unique_ptr<Run> run(new Run);
  run->options_ = std::move(options);
  run->run_directory_ = join_path(run_directory, "");
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
                                     .generator = "ckpt " CKPT_VERSION,
                                     .staging_bytes = run->options_.staging_bytes,
                                     .copy_threads = run->options_.copy_threads,
                                     .write_threads = run->options_.write_threads,
                                     .patience = run->options_.patience,
                                     .log = run->options_.log,
                                     .log_failure = std::move(log_failure)}));
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
  // Failures can only be logged here: callers that want them call close.
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
    return fail(Errc::usage, fmt::format("{}: its ckpt.toml has no [interval] for this run, no rule says when to save",
                                         options_.policy_store));
  }
  schedule_->set_rules(*rules);
  return {};
}

Result<bool> Run::should_save(std::uint64_t step) {
  const SaveSchedule::Vote mine = schedule_->vote(step, signal_ && signal_->requested());
  CKPT_TRY(const SaveSchedule::Vote told, saver_->round(mine));
  return schedule_->answer(step, told);
}

// --- saving ------------------------------------------------------------------------------------------------------

/// The checkpoints in the run and in the local tier, and the records of its trash. Rank 0.
Result<RunSeries> Run::known_series() {
  return series_of(*io_, run_directory_, near_directory());
}

/// If no checkpoint saved here follows the loaded one, the series continues. Else a new one begins, which supersedes
/// the run's later steps as of the load; if others have saved since, nothing.
universal::Run Run::series_after_load(const RunSeries& now) const {
  const bool went_back = loaded_generation_ != at_load_.newest_generation();
  const bool others = now.newest_generation() > at_load_.newest_generation() || now.greatest > at_load_.greatest;
  if (!went_back && now.greatest == loaded_series_) return stay_in_series(run_directory_, now);
  const bool supersedes = went_back && !others;
  universal::Run series = begin_series(run_directory_, now, supersedes ? std::optional(loaded_step_) : std::nullopt);
  if (supersedes)
    log(fmt::format("series {} begins: checkpoints of this run after step {} are superseded", series.series,
                    loaded_step_));
  else
    log(fmt::format(
        "series {} begins and supersedes nothing: {}", series.series,
        others ? "another process has saved to the run since step " + std::to_string(loaded_step_) + " was loaded"
               : "step " + std::to_string(loaded_step_) + " belongs to an earlier series"));
  return series;
}

/// The series of this run's saves: decided at its first one. Rank 0.
Result<universal::Run> Run::next_run() {
  CKPT_TRY(const RunSeries now, known_series());
  const bool is_empty = now.standing.empty() && now.greatest == 0;
  universal::Run series = is_empty             ? stay_in_series(run_directory_, now)
                          : loaded_id_.empty() ? begin_series(run_directory_, now, std::nullopt)
                                               : series_after_load(now);
  series.parent = loaded_id_;
  return series;
}

Result<> Run::begin(std::uint64_t step, const Result<>& mine) {
  Meta meta{.framework = options_.framework, .framework_version = options_.framework_version};
  schedule_->begin_save(step);
  last_step_ = step;
  std::function<Result<>(Saver::Description&)> prepare;
  if (comm_->is_root() || !mine) {
    prepare = [&](Saver::Description& description) -> Result<> {
      CKPT_CHECK(mine);
      if (!series_) {
        CKPT_TRY(series_, next_run());
      }
      description.run = series_;
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

void Run::note_loaded(const Checkpoint& checkpoint) {
  loaded_id_ = checkpoint.map().id;
  loaded_path_ = checkpoint.path();
  loaded_step_ = checkpoint.step();
  schedule_->resumed_at(loaded_step_);
  const auto loaded = std::ranges::find_if(at_load_.standing, [&](const RunCheckpoint& one) {
    return one.id == loaded_id_ || std::ranges::count(one.copies, checkpoint.path()) != 0;
  });
  if (loaded == at_load_.standing.end()) return;
  loaded_generation_ = loaded->name.generation;
  loaded_series_ = loaded->run ? loaded->run->series : 0;
}

Result<std::unique_ptr<Checkpoint>> Run::loaded_checkpoint(Io& io) const {
  if (loaded_path_.empty()) return fail(Errc::usage, run_directory_ + ": no checkpoint was loaded yet");
  CKPT_TRY(auto checkpoint, Checkpoint::open(io, loaded_path_));
  if (checkpoint->map().id != loaded_id_)
    return fail(Errc::not_found, loaded_path_ + ": it is no longer the checkpoint that was loaded");
  return checkpoint;
}

/// Marks the checkpoint as loaded, which proves that it loads. Once, if the store can be written; not for a copy that
/// exists only in the local tier. Rank 0.
void Run::mark_restored(const Checkpoint& checkpoint) {
  const std::string name = base_name(checkpoint.path());
  if (checkpoint.path() != join_path(run_directory_, name)) return;
  const auto now = std::chrono::time_point_cast<catalog::Duration>(std::chrono::system_clock::now());
  const auto marked = catalog::write_mark_once(*io_, catalog::marks_path(checkpoint.path(), false),
                                               {.kind = catalog::Mark::Kind::restored, .at = now}, foreign_names());
  if (marked && *marked) drop_note(*io_, run_directory_, name, "restored");
}

/// Opens the first candidate that is complete on all ranks; removes it and those before it from the list. Collective;
/// only rank 0's list counts.
Result<std::unique_ptr<Checkpoint>> Run::open_next(std::vector<std::string>& candidates,
                                                   std::vector<std::string>& skipped) {
  for (;;) {
    std::string path;
    if (comm_->is_root() && !candidates.empty()) {
      path = candidates.front();
      candidates.erase(candidates.begin());
    }
    CKPT_CHECK(comm_->broadcast(path, deadline()));
    if (path.empty()) {
      // A trainer that finds no checkpoint starts over; one that has lost them all must not.
      if (skipped.empty()) {
        return fail({.code = Errc::not_found,
                     .message = fmt::format("{}: there is no checkpoint", run_directory_),
                     .file = run_directory_});
      }
      return fail({.code = Errc::corrupt,
                   .message = fmt::format("{}: no checkpoint can be used, of {}", run_directory_, skipped.size()),
                   .file = run_directory_,
                   .hint = "the newest one: " + skipped.front()});
    }
    std::unique_ptr<Checkpoint> opened;
    auto verdict = agree_after(*comm_, options_.patience, [&]() -> Result<> {
      CKPT_TRY(opened, Checkpoint::open(*io_, path));
      auto reason = unusable(opened->map(), path);
      return reason ? fail(std::move(*reason)) : Result<>();
    });
    if (verdict) CKPT_CHECK(agree_on_id(*opened));
    if (verdict) return opened;
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return fail(std::move(verdict).error());
    // A checkpoint of a later release is not damaged: resuming from an older one would discard training.
    if (verdict_of(verdict.error()) == Errc::newer) return fail(std::move(verdict).error());
    skipped.push_back(verdict.error().message);
    tell_skipped(path, verdict.error());
  }
}

/// One path may be another directory on another node: then each rank would load another checkpoint. Collective.
Result<> Run::agree_on_id(const Checkpoint& checkpoint) {
  const auto words = hash128(checkpoint.map().id).words();
  CKPT_TRY(const std::vector<bool> equal, equal_on_all(*comm_, deadline(), words));
  if (equal[0] && equal[1]) return {};
  return fail({.code = Errc::io,
               .message = fmt::format("{}: ranks see different checkpoints under this name; id {} on rank {}",
                                      checkpoint.path(), checkpoint.map().id, rank()),
               .file = checkpoint.path(),
               .hint = "check that every rank names and mounts the same directory"});
}

void Run::tell_skipped(const std::string& path, const Error& why) const {
  const std::string what = options_.local_directory.empty() ? base_name(path) : path;  // a name may have two places
  log(fmt::format("{}: cannot be used, the {} is tried: {}", what,
                  options_.local_directory.empty() ? "one before" : "next copy, or the one before,", why.message));
}

/// Paths of the run's checkpoints that may be resumed from, newest first; of several copies the nearest first. Not
/// those that a roll-back has left behind, unless they are all there is to go on from. On rank 0; collective.
Result<std::vector<std::string>> Run::candidates(const Result<>& mine) {
  std::vector<std::string> usable;
  const auto look = [&]() -> Result<> {
    CKPT_CHECK(mine);
    CKPT_TRY(at_load_, known_series());
    if (!at_load_.standing.empty() || io_->stat(run_directory_)) return {};
    // It existed on opening. Reporting no checkpoint would make a trainer start over.
    return fail({.code = Errc::io,
                 .message = fmt::format("{}: the run directory no longer exists", run_directory_),
                 .file = run_directory_});
  };
  std::function<Result<>()> work;
  if (comm_->is_root() || !mine) work = look;
  CKPT_CHECK(agree_after(*comm_, options_.patience, work));
  const std::vector<RunCheckpoint>& standing = at_load_.standing;
  bool others = false;
  for (std::size_t i = 0; i < standing.size(); ++i)
    others = others || (!standing[i].id.empty() && !at_load_.superseded[i]);
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const std::vector<std::string>& copies = standing[i].copies;
    if (!at_load_.superseded[i] || !others) usable.insert(usable.end(), copies.begin(), copies.end());
  }
  return usable;
}

/// The local directory, if it holds complete checkpoints; with several nodes each has a part.
std::string Run::near_directory() const {
  return saver_->several_nodes() ? std::string() : options_.local_directory;
}

/// Several nodes: completes undrained checkpoints in the run directory, before an older one is taken for the newest.
/// Collective.
Result<> Run::finish_drains(std::vector<std::string>& skipped) {
  if (!saver_->several_nodes()) return {};
  auto drained = saver_->wait_all(kSaveTimeout);  // one that failed is tried again
  if (!drained && comm_->is_lost()) return drained;
  CKPT_TRY(skipped, saver_->drain_left(kSaveTimeout));
  return {};
}

Result<std::unique_ptr<Checkpoint>> Run::latest_usable(const Result<>& mine) {
  CKPT_CHECK(saver_->settle_round());
  std::vector<std::string> skipped;
  CKPT_CHECK(finish_drains(skipped));
  CKPT_TRY(std::vector<std::string> names, candidates(mine));
  CKPT_TRY(auto checkpoint, open_next(names, skipped));
  note_loaded(*checkpoint);
  return checkpoint;
}

/// The groups of ranks with the same data, if all ranks agree and none wants to read by itself; else none.
/// Collective.
Result<ReplicaGroups> Run::replica_groups() {
  if (comm_->ranks() == 1) return ReplicaGroups();
  const bool reads_itself = options_.replicas == Replicas::read || !comm_->has_messages() ||
                            (options_.replicas == Replicas::automatic && reading_is_faster_);
  const std::uint64_t word = model_.hash.words()[0];
  std::uint64_t words[3] = {word, ~word, reads_itself ? 1U : 0U};
  CKPT_CHECK(comm_->max(words, deadline()));
  if (words[0] != ~words[1] || words[2] != 0) return ReplicaGroups();
  return ReplicaGroups(model_, comm_->rank(), comm_->ranks());
}

/// Reads while the other ranks read: however unequal their shares are, a slow rank is not taken for lost. Collective;
/// local failures are this rank's own, those of communication are peer_failed.
Result<ReadReport> Run::read_beside(const std::function<Result<ReadReport>(const Checkpoint::ReadOptions&)>& read,
                                    bool partial) {
  Heartbeat heartbeat(*comm_, options_.patience);
  std::atomic<bool> stop{false};
  Result<bool> beat = false;
  auto options = read_options(partial);
  options.stop = &stop;
  options.pulse = [&] {
    if (beat) beat = heartbeat.beat(0, false);
    if (!beat || heartbeat.peer_failed()) stop.store(true);
  };
  auto report = caught([&] { return read(options); });
  const int code = report || report.error().code == Errc::interrupted ? 0 : static_cast<int>(report.error().code);
  for (bool over = false; !over;) {
    if (beat) beat = heartbeat.beat(code, true);
    if (!beat) return fail(std::move(beat).error());
    over = *beat;
    if (!over) std::this_thread::sleep_for(kNap);
  }
  return report;
}

/// Receives what other ranks have read for this rank, and measures whether it was worth it. Collective.
Result<> Run::exchange_parts(const DividedLoad& load, ReadReport& report, std::chrono::nanoseconds read_time) {
  CKPT_TRY(const std::uint64_t exchange_ns, exchange(*comm_, options_.patience, load));
  report.received_bytes = load.received_bytes();
  report.needed_bytes += report.received_bytes;
  const std::uint64_t mib = report.read_bytes >> 20;
  std::uint64_t most[3] = {mib == 0 ? 0 : static_cast<std::uint64_t>(read_time.count()) / mib, report.received_bytes,
                           exchange_ns};
  CKPT_CHECK(comm_->max(most, deadline()));
  const ExchangeCost cost{.read_ns_a_mib = most[0], .received_bytes = most[1], .exchange_ns = most[2]};
  reading_is_faster_ = ckpt::reading_is_faster(cost);
  if (comm_->is_root() && reading_is_faster_ && options_.replicas == Replicas::automatic) {
    log(fmt::format("replicas are read by each rank from now on: {} MiB took {} ms to exchange",
                    cost.received_bytes >> 20, cost.exchange_ns / 1'000'000));
  }
  return {};
}

Result<Run::Loaded> Run::load(std::span<const NamedRead> reads, bool partial, const Result<>& failed) {
  CKPT_CHECK(saver_->settle_round());
  Loaded loaded;
  CKPT_CHECK(finish_drains(loaded.skipped));
  CKPT_TRY(std::vector<std::string> names, candidates(failed));
  CKPT_TRY(const ReplicaGroups groups, replica_groups());
  for (;;) {
    CKPT_TRY(const auto checkpoint, open_next(names, loaded.skipped));
    auto wanted = caught([&] { return checkpoint->requests(reads, read_options(partial)); });
    auto divided = caught([&]() -> Result<DividedLoad> {
      if (!wanted) return fail(wanted.error());
      return DividedLoad::plan(checkpoint->map(), wanted->parts, groups);
    });
    CKPT_TRY(const bool exchanges, DividedLoad::prove(*comm_, deadline(), groups, divided ? &*divided : nullptr));
    std::chrono::nanoseconds read_time{0};
    auto report = read_beside(
        [&](const Checkpoint::ReadOptions& options) -> Result<ReadReport> {
          if (!divided) return fail(divided.error());
          const auto start = Clock::now();
          LoadPlan plan =
              divided->reads(checkpoint->map(), checkpoint->leaves(), {.whole_leaves = options.whole_leaves});
          auto done = checkpoint->read(wanted->parts, std::move(plan), *io_, *read_pool_, options);
          read_time = Clock::now() - start;
          return done;
        },
        partial);
    // A rank stopped because another failed adds nothing to that reason.
    const bool only_stopped = !report && report.error().code == Errc::interrupted;
    auto verdict = agree(*comm_, deadline(), report || only_stopped ? Result<>() : fail(report.error()));
    if (verdict && only_stopped) verdict = fail(report.error());
    if (verdict) {
      if (exchanges) CKPT_CHECK(exchange_parts(*divided, *report, read_time));
      loaded.step = checkpoint->step();
      loaded.report = {.load = *report, .missing = std::move(wanted->missing)};
      note_loaded(*checkpoint);
      std::function<Result<>()> mark;
      if (comm_->is_root() && loaded.report.missing.empty()) {
        mark = [&]() -> Result<> {
          mark_restored(*checkpoint);
          return {};
        };
      }
      CKPT_CHECK(agree_after(*comm_, options_.patience, mark));
      return loaded;
    }
    if (!is_lost_copy(verdict_of(verdict.error()))) return fail(std::move(verdict).error());
    loaded.skipped.push_back(verdict.error().message);
    tell_skipped(checkpoint->path(), verdict.error());
  }
}

}  // namespace ckpt
