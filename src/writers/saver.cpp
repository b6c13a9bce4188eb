#include "writers/saver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/caught.hpp"
#include "engine/heartbeat.hpp"
#include "engine/run.hpp"
#include "engine/run_directory.hpp"
#include "writers/publish_save.hpp"
#include "writers/save_record.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
// Leaves that are copied, hashed and written at the same time: the disk's queue of 8 stays full.
constexpr std::uint64_t kLeastStagedLeaves = 16;
constexpr auto kNap = std::chrono::milliseconds(1);  // between rounds that wait for the disk

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Hash128 random_id() {
  std::random_device device;  // the system's: ranks of two jobs may start in the same instant
  Hash128 id;
  for (std::uint8_t& byte : id.bytes) byte = static_cast<std::uint8_t>(device());
  return id;
}

std::string now_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return universal::utc_text(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

/// What a round's all-reduce holds. The maximum of a value and of its complement are equal where all ranks agree.
struct Saver::Word {
  enum : std::size_t { stop, due, unwritten, unpublished, undrained, timed_out, resolved, not_resolved, count };
};

struct Saver::Begun {
  Description description{};
  std::shared_ptr<PendingSave> save{};
  std::vector<Piece> pieces{};
  Result<> outcome{};  // the first failure of `add`
};

std::uint64_t Saver::smallest_staging_bytes() {
  return kLeastStagedLeaves * kRunBufferBytes;
}

Saver::Saver(Io& /*io*/, Comm& comm, Options options) : comm_(comm), options_(std::move(options)) {}

Saver::~Saver() {
  drop_begun();
  flusher_.reset();  // ends what was begun; alone, that begins the commits
  if (!alone()) {
    while (!in_flight_.empty()) {
      const std::shared_ptr<PendingSave> save = in_flight_.front();
      if (save->phase == PendingSave::Phase::writing) drop_publication(save);
      settle(save, fail(Errc::interrupted, "save: the store was closed before all ranks had agreed"));
    }
  }
  committer_.reset();
  close_drains();
}

Deadline Saver::deadline() const {
  return Clock::now() + options_.patience;
}

Result<std::unique_ptr<Saver>> Saver::open(Io& io, Comm& comm, Options options) {
  std::unique_ptr<Saver> saver(new Saver(io, comm, std::move(options)));
  const Options& wanted = saver->options_;
  CKPT_CHECK(saver->agree_on_tiers(io));
  auto mine = caught([&]() -> Result<> {
    const std::uint64_t bytes = std::max(wanted.staging_bytes, smallest_staging_bytes());
    CKPT_TRY(saver->pool_, BufferPool::open({.buffer_bytes = kRunBufferBytes,
                                             .buffer_count = static_cast<std::size_t>(bytes / kRunBufferBytes)}));
    if (wanted.staging_bytes != 0) saver->pool_->warm();  // the trainer's time is what staging saves
    CKPT_TRY(auto flusher_io, io.fresh());
    saver->flusher_ = std::make_unique<Background>(std::move(flusher_io));
    if (!saver->leads()) return {};
    CKPT_TRY(auto committer_io, io.fresh());
    CKPT_CHECK(saver->prepare(*committer_io));
    saver->committer_ = std::make_unique<Background>(std::move(committer_io));
    return {};
  });
  CKPT_CHECK(agree(comm, saver->deadline(), std::move(mine)));
  if (saver->tiered()) CKPT_CHECK(saver->take_up_undrained());
  return saver;
}

Result<> Saver::prepare(Io& io) {
  if (comm_.is_root()) CKPT_CHECK(prepare_directory(io, options_.run_directory));
  return tiered() ? open_tiers(io) : Result<>();
}

/// A directory, with what crashed saves left in it removed.
Result<> Saver::prepare_directory(Io& io, const std::string& directory) const {
  CKPT_CHECK(make_directory(io, directory));
  std::vector<std::string> swept;
  CKPT_CHECK(sweep_partials(io, directory, swept));
  for (const std::string& name : swept) log(fmt::format("{}: removed {}, which a crashed save left", directory, name));
  return {};
}

void Saver::log(const std::string& text) const {
  if (options_.log) options_.log(text);
}

void Saver::set_model(Model model) {
  model_ = std::move(model);
  table_.reset();
}

// --- one save ----------------------------------------------------------------------------------------------------

/// Carries a task out on the committer's thread and waits for it.
Result<> Saver::on_committer(const std::function<Result<>(Io&)>& task) {
  std::promise<Result<>> done;
  auto result = done.get_future();
  committer_->add([&](Io& io) { done.set_value(caught([&] { return task(io); })); });
  return result.get();
}

Result<> Saver::begin(Description description, Result<> mine) {
  drop_begun();
  CKPT_CHECK(settle_round());
  carried_.due = false;            // this is the save that was due
  if (alone()) forget_resolved();  // a trainer that only polls calls nothing else
  const std::uint64_t step = description.step;
  auto id = Hash128{};
  std::string root;
  std::unique_ptr<Publication> publication;
  if (comm_.is_root() && mine) {
    id = random_id();
    mine = on_committer([&](Io& io) -> Result<> {
      CKPT_TRY(publication, Publication::begin(io,
                                               {.target = join_path(home(), step_text(step)),
                                                .id = id.hex(),
                                                .folders = all_folders(),
                                                .named_later = true},
                                               {}));
      root = publication->root();
      return {};
    });
  }
  const auto give_up = [&](Error error) -> Result<> {
    if (publication) {
      static_cast<void>(on_committer([&](Io&) -> Result<> {
        publication.reset();
        return {};
      }));
    }
    return fail(lose_peers(std::move(error)));
  };
  std::uint64_t words[2] = {step, ~step};
  if (auto told = comm_.max(words, deadline()); !told) return give_up(std::move(told).error());
  if (words[0] != ~words[1]) {
    return give_up({.code = Errc::usage,
                    .message = fmt::format("save: the ranks disagree on the step: {} here, {} elsewhere", step,
                                           words[0] == step ? ~words[1] : words[0])});
  }
  if (auto agreed = agree(comm_, deadline(), std::move(mine)); !agreed) return give_up(std::move(agreed).error());
  std::string text = id.hex() + root;
  if (auto told = comm_.broadcast(text, deadline()); !told) return give_up(std::move(told).error());
  constexpr std::size_t kIdDigits = 32;
  const auto told_id = Hash128::from_hex(std::string_view(text).substr(0, kIdDigits));
  if (!told_id) return give_up({.code = Errc::internal, .message = "save: rank 0 told no id"});

  begun_ = std::make_unique<Begun>();
  begun_->description = std::move(description);
  begun_->save = std::make_shared<PendingSave>(*told_id);
  begun_->save->step = step;
  begun_->save->tiered = tiered();
  begun_->save->root = text.substr(kIdDigits);
  begun_->save->publication = std::move(publication);
  if (!several_nodes_) return {};
  auto elsewhere = begin_elsewhere(*begun_->save);
  if (!elsewhere) drop_begun();
  return elsewhere;
}

Result<> Saver::add(Piece piece) {
  if (!begun_) return fail(Errc::usage, "save: add: no save was begun");
  begun_->pieces.push_back(std::move(piece));
  return {};
}

void Saver::refuse(Error error) {
  if (begun_ && begun_->outcome) begun_->outcome = fail(std::move(error));
}

void Saver::describe(std::vector<std::pair<std::string, std::string>> user) {
  if (begun_) begun_->description.meta.user = std::move(user);
}

void Saver::drop_begun() {
  if (!begun_) return;
  const auto save = begun_->save;
  begun_.reset();
  drop_publication(save);
}

/// Removes the partial of a save that will not be committed, on the thread that alone touches it.
void Saver::drop_publication(const std::shared_ptr<PendingSave>& save) {
  if (committer_) committer_->add([save](Io&) { save->publication.reset(); });
}

Result<std::shared_ptr<PendingSave>> Saver::commit() {
  if (!begun_) return fail(Errc::usage, "save: commit: no save was begun");
  const auto start = Clock::now();
  if (auto settled = settle_round(); !settled) {
    drop_begun();
    return fail(std::move(settled).error());
  }
  const std::shared_ptr<PendingSave> save = begun_->save;
  auto table =
      agree_on_table(comm_, deadline(), model_, begun_->pieces, std::move(begun_->outcome), table_, table_hash_);
  if (!table) {
    drop_begun();
    return fail(lose_peers(std::move(table).error()));
  }
  table_ = *table;
  const std::unique_ptr<Begun> begun = std::move(begun_);
  describe(*save, begun->description);
  in_flight_.push_back(save);

  auto prepared = caught([&]() -> Result<> {
    CKPT_TRY(save->files, lay_out_save(*table_, begun->pieces, save->id(), static_cast<std::uint32_t>(comm_.rank())));
    save->records = save->files->records;
    CKPT_TRY(Plan plan, Plan::make(save->files->source, std::move(save->files->targets)));
    save->plan = std::make_unique<Plan>(std::move(plan));
    save->staging = std::make_unique<Staging>(*save->plan, save->files->memory, *pool_);
    return {};
  });
  const double plan_s = seconds_since(start);
  // Each leaf takes a buffer, however short it is: bytes do not tell whether the save fits.
  const std::uint64_t leaves = prepared ? save->plan->totals().leaves : 0;
  const std::uint64_t room = pool_->buffer_count();
  const bool fits = leaves <= room;
  auto waits = some_rank_waits(!fits || in_flight_.size() > 1);
  if (!waits) return fail(lose_peers(std::move(waits).error()));
  if (prepared) {
    const std::lock_guard held(save->mutex_);
    save->times_.plan_s = plan_s;
    save->times_.bytes = save->files->bytes;
  } else {
    finish_flush(save, fail(std::move(prepared).error()), 0);
  }
  if (!fits) {
    log(fmt::format(
        "step {}: {} bytes to save in {} pieces, staging memory holds {}: commit waits until {} are written",
        begun->description.step, save->files->bytes, leaves, room, leaves - room));
  }
  const auto stage_own = [&] {
    if (save->staging) stage(save, !fits);
  };
  if (!*waits) {
    stage_own();
  } else if (auto staged = stage_beside_others(stage_own, save->staging.get()); !staged) {
    return fail(lose_peers(std::move(staged).error()));
  }
  return save;
}

/// Whether staging may take longer than a copy on any rank. Collective.
Result<bool> Saver::some_rank_waits(bool here) {
  if (alone()) return false;
  std::uint64_t word = here ? 1 : 0;
  CKPT_CHECK(comm_.max({&word, 1}, deadline()));
  return word != 0;
}

/// Copies this rank's parts; they are written at the same time where staging memory cannot hold them all.
void Saver::stage(const std::shared_ptr<PendingSave>& save, bool flush_beside) {
  const auto start = Clock::now();
  const auto start_flush = [&] { flusher_->add([this, save](Io& io) { flush(save, io); }); };
  // Who waits for the disk hashes meanwhile; else hashing would take the processor from the copy that is waited for.
  if (flush_beside) start_flush();
  static_cast<void>(save->staging->fill(options_.copy_threads, flush_beside));  // its failure is the run's
  {
    const std::lock_guard held(save->mutex_);
    save->times_.stage_s = seconds_since(start);
  }
  if (!flush_beside) start_flush();
}

/// A rank that waits for its disk, for as long as it takes, is not taken for lost by those that have less to save.
/// Collective. errors  peer_failed
Result<> Saver::stage_beside_others(const std::function<void()>& stage, Staging* staging) {
  std::atomic<bool> staged{false};
  const auto all = [&] {
    stage();
    staged = true;
  };
  std::optional<std::jthread> stager;
  try {
    stager.emplace(all);
  } catch (const std::system_error&) {
    all();  // no more threads here
  }
  Heartbeat heartbeat(comm_, options_.patience);
  for (;;) {
    auto over = heartbeat.beat(0, staged);
    if (!over && staging != nullptr) staging->close();  // nobody will commit it
    if (!over) return fail(std::move(over).error());
    if (*over) return {};
    std::this_thread::sleep_for(kNap);
  }
}

void Saver::describe(PendingSave& save, const Description& description) const {
  universal::Manifest& manifest = save.manifest;
  manifest.id = save.id();
  manifest.created = now_text();
  manifest.generator = options_.generator;
  manifest.run = description.run;
  manifest.meta = description.meta;
  manifest.meta.step = description.step;
  manifest.meta.world_size = static_cast<std::uint64_t>(comm_.ranks());
  if (!comm_.is_root()) return;
  manifest.layouts = table_->layouts;
  manifest.tensors = table_->rows;
}

/// This rank's files: made, hashed and written as their leaves are staged, synced. On the flusher's thread.
void Saver::flush(const std::shared_ptr<PendingSave>& save, Io& io) {
  const auto start = Clock::now();
  auto leaves = caught([&]() -> Result<std::vector<Hash128>> {
    CKPT_CHECK(make_files(io, save->root, save->plan->targets()));
    const auto solo = Comm::solo();
    CKPT_TRY(RunReport report, run(*save->plan, io, *solo,
                                   {.target_root = save->root,
                                    .workers = options_.write_threads,
                                    .pool = pool_.get(),
                                    .staging = save->staging.get()}));
    return std::move(report.leaves);
  });
  save->staging->close();
  finish_flush(save, std::move(leaves), seconds_since(start));
}

/// Alone, nobody else must agree: the commit follows at once.
void Saver::finish_flush(const std::shared_ptr<PendingSave>& save, Result<std::vector<Hash128>> leaves,
                         double seconds) {
  const bool written = leaves.has_value();
  std::optional<Error> error;
  if (!written) error = leaves.error();
  save->finish_writing(std::move(leaves), seconds);
  if (!alone()) return;
  if (!written) {
    drop_publication(save);
    save->resolve(fail(std::move(*error)));
  } else {
    publish_later(save, {own_record(*save)});
  }
}

std::string Saver::own_record(const PendingSave& save) {
  const std::lock_guard held(save.mutex_);
  return to_text({.files = save.records, .leaves = save.leaves_->value(), .times = save.times_});
}

void Saver::publish_later(const std::shared_ptr<PendingSave>& save, std::vector<std::string> parts) {
  committer_->add([this, save, parts = std::move(parts)](Io& io) {
    const auto start = Clock::now();
    auto name = caught([&] { return publish(io, *save, parts); });
    save->publication.reset();
    save->finish_publishing(name, seconds_since(start));
    if (!alone()) return;
    if (!name) {
      save->resolve(fail(std::move(name).error()));
      return;
    }
    save->resolve(SaveOutcome{.name = *name, .id = save->id().hex()});
    if (tiered()) start_drain(save, *name);
  });
}

Result<std::string> Saver::publish(Io& io, PendingSave& save, const std::vector<std::string>& parts) {
  if (several_nodes_) return publish_sealed(io, save);
  std::vector<RankRecord> ranks;
  for (const std::string& part : parts) {
    CKPT_TRY(RankRecord record, record_from_text(part));
    ranks.push_back(std::move(record));
  }
  MergedRecords merged = merge(ranks);
  return publish_save(io, *save.publication,
                      {.run_directory = home(),
                       .step = save.step,
                       .manifest = std::move(save.manifest),
                       .files = std::move(merged.files),
                       .leaves = std::move(merged.leaves),
                       .statistics = statistics_text(ranks),
                       .least_generation = drainer_ ? drainer_->least_generation() : 0});
}

// --- the ranks' agreement ------------------------------------------------------------------------------------------

bool Saver::in_flight() const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [](const auto& save) { return !save->resolved(); });
}

Result<> Saver::start_round(Vote mine, bool timed_out) {
  words_.assign(Word::count, 0);
  words_[Word::stop] = mine.stop ? 1 : 0;
  words_[Word::due] = mine.due ? 1 : 0;
  words_[Word::timed_out] = timed_out ? 1 : 0;
  // Where nothing is in flight yet, a save may be by the time the round is completed: this vote is not about it.
  const bool any = !in_flight_.empty();
  words_[Word::unwritten] = any && in_flight_.front()->written() ? 0 : 1;
  words_[Word::unpublished] = any && (!leads() || in_flight_.front()->published()) ? 0 : 1;
  words_[Word::undrained] = front_undrained() ? 1 : 0;
  words_[Word::resolved] = resolved_;
  words_[Word::not_resolved] = ~resolved_;
  CKPT_TRY(pending_, comm_.start_max(words_));
  return {};
}

Result<Saver::Vote> Saver::finish_round(bool& timed_out) {
  const Deadline until = deadline();
  for (unsigned tests = 0;; ++tests) {
    CKPT_TRY(const bool done, pending_.test());
    if (done) break;
    if (Clock::now() >= until) {
      pending_ = {};
      return fail(Errc::peer_failed, "save: not all ranks answered before the deadline");
    }
    if (tests > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  pending_ = {};
  if (words_[Word::resolved] != ~words_[Word::not_resolved]) {
    return fail(Errc::internal, "save: the ranks call save functions in different orders");
  }
  timed_out = words_[Word::timed_out] != 0;
  const Vote told{.stop = words_[Word::stop] != 0, .due = words_[Word::due] != 0};
  CKPT_CHECK(act());
  return told;
}

/// What all ranks do after a round, on the same words.
Result<> Saver::act() {
  if (!in_flight_.empty()) {
    const std::shared_ptr<PendingSave> oldest = in_flight_.front();
    if (oldest->phase == PendingSave::Phase::writing && words_[Word::unwritten] == 0) {
      CKPT_CHECK(collect(oldest));
    } else if (oldest->phase == PendingSave::Phase::publishing && words_[Word::unpublished] == 0) {
      CKPT_CHECK(conclude(oldest));
    }
  }
  return words_[Word::undrained] == 0 ? conclude_drain() : Result<>();
}

/// All ranks have written: rank 0 gets what it needs for the commit; or one failed, and all learn it.
Result<> Saver::collect(const std::shared_ptr<PendingSave>& save) {
  Result<> mine;
  {
    const std::lock_guard held(save->mutex_);
    if (!*save->leaves_) mine = fail(save->leaves_->error());
  }
  if (auto verdict = agree(comm_, deadline(), std::move(mine)); !verdict) {
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return verdict;  // it was lost
    drop_publication(save);
    settle(save, fail(std::move(verdict).error()));
    return {};
  }
  CKPT_TRY(std::vector<std::string> parts, comm_.gather(own_record(*save), deadline()));
  save->phase = PendingSave::Phase::publishing;
  if (several_nodes_) return spread(save, parts);
  if (comm_.is_root()) publish_later(save, std::move(parts));
  return {};
}

/// Rank 0's commit has ended: all learn how.
Result<> Saver::conclude(const std::shared_ptr<PendingSave>& save) {
  Result<> mine;
  std::string name;
  if (leads()) {
    const std::lock_guard held(save->mutex_);
    if (*save->published_) {
      name = **save->published_;
    } else {
      mine = fail(save->published_->error());
    }
  }
  if (auto verdict = agree(comm_, deadline(), std::move(mine)); !verdict) {
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return verdict;
    if (several_nodes_ && !name.empty()) take_back(save);  // other nodes lack their part of it
    settle(save, fail(std::move(verdict).error()));
    return {};
  }
  CKPT_CHECK(comm_.broadcast(name, deadline()));
  settle(save, SaveOutcome{.name = name, .id = save->id().hex()});
  return {};
}

void Saver::settle(const std::shared_ptr<PendingSave>& save, const Result<SaveOutcome>& outcome) {
  save->phase = PendingSave::Phase::over;
  save->resolve(outcome);
  std::erase(in_flight_, save);
  ++resolved_;
  tell_failure(*save);
  if (save->tiered && save->outcome()) drain_later(save);
}

/// A trainer need not ask how a save ended; its user wants to know all the same.
void Saver::tell_failure(const PendingSave& save) const {
  if (const auto outcome = save.outcome(); !outcome) {
    log(fmt::format("step {}: not saved: {}", save.step, outcome.error().message));
  }
}

/// Other ranks were lost: what is in flight fails here, unless rank 0 had committed it.
Error Saver::lose_peers(Error error) {
  if (error.code != Errc::peer_failed || error.verdict) return error;
  pending_ = {};
  while (!in_flight_.empty()) {
    const std::shared_ptr<PendingSave> save = in_flight_.front();
    std::optional<std::string> name;
    if (several_nodes_) {
      // Whether every node has its part nobody can tell any more.
    } else if (save->phase == PendingSave::Phase::publishing && comm_.is_root()) {
      // Nobody can stop it any more; what it comes to is true whoever hears of it.
      static_cast<void>(on_committer([](Io&) -> Result<> { return {}; }));
      const std::lock_guard held(save->mutex_);
      if (*save->published_) name = **save->published_;
    } else if (save->phase == PendingSave::Phase::publishing) {
      std::promise<void> looked;
      flusher_->add([&](Io& io) {
        static_cast<void>(caught([&]() -> Result<> {
          name = find_committed(io, home(), save->step, save->id());
          return {};
        }));
        looked.set_value();
      });
      looked.get_future().wait();
    }
    if (save->phase == PendingSave::Phase::writing) drop_publication(save);
    if (name) {
      settle(save, SaveOutcome{.name = *name, .id = save->id().hex()});
    } else {
      settle(save, fail(error));
    }
  }
  lose_drains(error);
  return error;
}

void Saver::forget_resolved() {
  while (!in_flight_.empty() && in_flight_.front()->resolved()) {
    const std::shared_ptr<PendingSave> save = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++resolved_;
    tell_failure(*save);
    if (save->tiered && save->outcome()) draining_.push_back(save);
  }
  forget_drained();
}

Result<Saver::Vote> Saver::round(Vote mine) {
  if (alone()) {
    forget_resolved();
    return mine;
  }
  CKPT_CHECK(settle_round());
  if (auto started = start_round(mine, false); !started) return fail(lose_peers(std::move(started).error()));
  return std::exchange(carried_, Vote{});
}

Result<> Saver::settle_round() {
  if (!pending_.active()) return {};
  bool timed_out = false;
  auto told = finish_round(timed_out);
  if (!told) return fail(lose_peers(std::move(told).error()));
  carried_ = {.stop = carried_.stop || told->stop, .due = carried_.due || told->due};
  return {};
}

}  // namespace ckpt
