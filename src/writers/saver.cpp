#include "writers/saver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/comm/heartbeat.hpp"
#include "engine/io/caught.hpp"
#include "engine/run/run.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/publish_save.hpp"
#include "writers/replica_check.hpp"
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

struct Saver::Begun {
  Description description{};
  std::shared_ptr<PendingSave> save{};
  std::vector<Piece> pieces{};
  Result<> outcome{};                       // the first failure of `add`
  std::unordered_set<std::string> given{};  // tensors of the model
};

std::uint64_t Saver::smallest_staging_bytes() {
  return kLeastStagedLeaves * kRunBufferBytes;
}

Saver::Saver(Io& /*io*/, Comm& comm, Options options) : comm_(comm), options_(std::move(options)) {}

Saver::~Saver() {
  drop_begun();
  flusher_.reset();  // ends the current save; with one rank, this starts the commits
  if (!alone()) {
    while (!in_flight_.empty()) {
      const std::shared_ptr<PendingSave> save = in_flight_.front();
      settle(save, fail(Errc::interrupted, "the run was closed before all ranks had agreed"));
    }
  }
  committer_.reset();
  if (alone()) forget_resolved();
  close_drains();
}

Deadline Saver::deadline() const {
  return comm_.now() + options_.patience;
}

Result<std::unique_ptr<Saver>> Saver::open(Io& io, Comm& comm, Options options) {
  std::unique_ptr<Saver> saver(new Saver(io, comm, std::move(options)));
  const Options& wanted = saver->options_;
  CKPT_CHECK(saver->agree_on_tiers(io));
  const auto opened = agree_after(comm, wanted.patience, [&]() -> Result<> {
    const std::uint64_t bytes = std::max(wanted.staging_bytes, smallest_staging_bytes());
    CKPT_TRY(saver->pool_, BufferPool::open({.buffer_bytes = kRunBufferBytes,
                                             .buffer_count = static_cast<std::size_t>(bytes / kRunBufferBytes)}));
    if (wanted.staging_bytes != 0) saver->pool_->warm();  // staging saves the trainer's time
    CKPT_TRY(auto flusher_io, io.fresh());
    saver->flusher_ = std::make_unique<Background>(std::move(flusher_io));
    if (!saver->leads()) return {};
    CKPT_TRY(auto committer_io, io.fresh());
    CKPT_CHECK(saver->prepare(*committer_io));
    saver->committer_ = std::make_unique<Background>(std::move(committer_io));
    return {};
  });
  for (const std::string& note : saver->swept_) saver->log(note);
  CKPT_CHECK(opened);
  if (!saver->tiered()) return saver;
  CKPT_TRY(const std::vector<Left> left, saver->left_on_all(saver->undrained_));
  if (!left.empty()) saver->take_up(left.front());
  return saver;
}

Result<> Saver::prepare(Io& io) {
  if (comm_.is_root()) CKPT_CHECK(prepare_directory(io, options_.run_directory));
  return tiered() ? open_tiers(io) : Result<>();
}

/// A directory, after removing leftovers of crashed saves.
Result<> Saver::prepare_directory(Io& io, const std::string& directory) {
  CKPT_CHECK(make_directory(io, directory));
  CKPT_TRY(const HeldRun held, hold_run(io, directory));
  CKPT_TRY(const SweptPartials swept, sweep_partials(io, directory));
  for (const std::string& name : swept.removed) {
    swept_.push_back(fmt::format("{}: removed {}, left by a crashed save", directory, name));
  }
  for (const Error& kept : swept.kept) swept_.push_back("kept, though a crashed save left it: " + kept.message);
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

Result<> Saver::begin(Description description, const std::function<Result<>(Description&)>& prepare) {
  drop_begun();
  CKPT_CHECK(settle_round());
  carried_.due = false;            // this is the save that was due
  if (alone()) forget_resolved();  // a trainer that only polls calls nothing else
  const std::uint64_t step = description.step;
  const auto save = std::make_shared<PendingSave>(comm_.is_root() ? random_id() : Hash128());
  const auto give_up = [&](Error error) -> Result<> {
    drop_publication(save);
    return fail(lose_peers(std::move(error)));
  };
  std::uint64_t words[2] = {step, ~step};
  if (auto told = comm_.max(words, deadline()); !told) return give_up(std::move(told).error());
  if (words[0] != ~words[1]) {
    return give_up({.code = Errc::usage,
                    .message = fmt::format("the ranks disagree on the step: {} here, {} elsewhere", step,
                                           words[0] == step ? ~words[1] : words[0])});
  }
  // The committer may still be at work on the save before, and the disk may stall.
  std::function<Result<>()> work;
  if (prepare || comm_.is_root()) {
    work = [&]() -> Result<> {
      if (prepare) CKPT_CHECK(prepare(description));
      return comm_.is_root() ? make_partial(*save, step) : Result<>();
    };
  }
  auto begun = agree_after(comm_, options_.patience, work);
  if (!begun) return give_up(std::move(begun).error());
  std::string text = save->id().hex() + save->root;
  if (auto told = comm_.broadcast(text, deadline()); !told) return give_up(std::move(told).error());
  constexpr std::size_t kIdDigits = 32;
  const auto told_id = Hash128::from_hex(std::string_view(text).substr(0, kIdDigits));
  if (!told_id) return give_up({.code = Errc::internal, .message = "rank 0 told no id"});

  begun_ = std::make_unique<Begun>();
  begun_->description = std::move(description);
  begun_->save = comm_.is_root() ? save : std::make_shared<PendingSave>(*told_id);
  begun_->save->step = step;
  begun_->save->tiered = tiered();
  begun_->save->root = text.substr(kIdDigits);
  if (!several_nodes_) return {};
  auto elsewhere = begin_elsewhere(*begun_->save);
  if (!elsewhere) drop_begun();
  return elsewhere;
}

/// A leader's. Waits for the committer.
Result<> Saver::make_partial(PendingSave& save, std::uint64_t step) {
  return on_committer([&](Io& io) -> Result<> {
    CKPT_TRY(save.publication, Publication::begin(io,
                                                  {.target = join_path(home(), step_text(step)),
                                                   .id = save.id().hex(),
                                                   .folders = all_folders(),
                                                   .named_later = true},
                                                  {}));
    save.root = save.publication->root();
    return {};
  });
}

Result<> Saver::add(Piece piece) {
  if (!begun_) return fail(Errc::usage, "add: no save was begun");
  auto fits = caught([&] { return check_piece(piece, model_, static_cast<std::uint64_t>(comm_.rank())); });
  if (fits && !piece.described && !begun_->given.insert(piece.name).second) {
    fits = fail({.code = Errc::usage, .message = fmt::format("{}: added twice", piece.name), .tensor = piece.name});
  }
  if (!fits) {
    refuse(fits.error());
    return fits;
  }
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

/// Removes the partial of a save that will not be committed, on the thread that alone touches it. One that was
/// committed, or is about to be, is gone by then: nothing happens.
void Saver::drop_publication(const std::shared_ptr<PendingSave>& save) {
  if (committer_) committer_->add([save](Io&) { save->publication.reset(); });
}

/// The same, when this rank has ended writing to it. The trainer's thread only.
void Saver::drop_when_flushed(const std::shared_ptr<PendingSave>& save) {
  if (!committer_ || !flusher_ || save->written()) return drop_publication(save);
  flusher_->add([this, save](Io&) { drop_publication(save); });
}

Result<std::shared_ptr<PendingSave>> Saver::commit() {
  if (!begun_) return fail(Errc::usage, "no save was begun");
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

  auto prepared = caught([&]() -> Result<> {
    CKPT_TRY(save->files, lay_out_save(*table_, begun->pieces, save->id(), static_cast<std::uint32_t>(comm_.rank())));
    save->records = save->files->records;
    CKPT_TRY(Plan plan, Plan::make(save->files->source, std::move(save->files->targets)));
    save->plan = std::make_unique<Plan>(std::move(plan));
    save->staging = std::make_unique<Staging>(*save->plan, save->files->memory, *pool_);
    return {};
  });
  const double plan_s = seconds_since(start);
  // Each leaf takes a buffer, however short it is: the number of bytes does not show whether the save fits.
  const std::uint64_t leaves = prepared ? save->plan->totals().leaves : 0;
  const std::uint64_t room = pool_->buffer_count();
  const bool fits = leaves <= room;
  auto waits = some_rank_waits(!fits || !in_flight_.empty(), prepared, begun->pieces);
  if (!waits) {
    drop_publication(save);
    return fail(lose_peers(std::move(waits).error()));
  }
  in_flight_.push_back(save);
  {
    const std::lock_guard held(save->mutex_);
    save->times_.plan_s = plan_s;
    save->times_.bytes = save->files->bytes;
  }
  if (!fits) {
    log(fmt::format(
        "step {}: {} bytes to save in {} pieces, staging memory holds {}: commit waits until {} are written",
        begun->description.step, save->files->bytes, leaves, room, leaves - room));
  }
  const auto stage_own = [&] { stage(save, !fits); };
  if (!*waits) {
    stage_own();
  } else if (auto staged = stage_beside_others(stage_own, *save->staging); !staged) {
    return fail(lose_peers(std::move(staged).error()));
  }
  return save;
}

/// Whether staging may take longer than a copy on any rank; if one cannot save its part, or its replicas differ, all
/// fail. Collective.
Result<bool> Saver::some_rank_waits(bool here, const Result<>& prepared, std::span<const Piece> pieces) {
  if (alone()) return prepared.map([] { return false; });
  ReplicaCheck replicas(model_, *table_, pieces);
  if (replicas.is_needed()) {
    CKPT_CHECK(agree_after(comm_, options_.patience, [&]() -> Result<> {
      return prepared ? replicas.hash(*pool_, options_.copy_threads) : Result<>();
    }));
  }
  std::vector<std::uint64_t> words = replicas.words();
  words.insert(words.end(), {here ? 1U : 0U, prepared ? 0U : 1U});
  CKPT_CHECK(comm_.max(words, deadline()));
  const std::size_t own = words.size() - 2;
  if (words[own + 1] != 0) CKPT_CHECK(agree(comm_, deadline(), prepared));
  CKPT_CHECK(replicas.judge(comm_, deadline(), std::span(words).first(own)));
  return words[own] != 0;
}

/// Copies this rank's parts; they are written at the same time where staging memory cannot hold them all.
void Saver::stage(const std::shared_ptr<PendingSave>& save, bool flush_beside) {
  const auto start = Clock::now();
  const auto start_flush = [&] { flusher_->add([this, save](Io& io) { flush(save, io); }); };
  // If the caller waits for the disk anyway, hash meanwhile; else hashing would slow down the copy.
  if (flush_beside) start_flush();
  static_cast<void>(save->staging->fill(options_.copy_threads, flush_beside));  // its failure is the run's
  {
    const std::lock_guard held(save->mutex_);
    save->times_.stage_s = seconds_since(start);
  }
  if (!flush_beside) start_flush();
}

/// A rank that waits for its disk, for as long as it takes, is not taken for lost by those that have less to save.
/// Collective.
/// errors  peer_failed
Result<> Saver::stage_beside_others(const std::function<void()>& stage, Staging& staging) {
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
    if (!over) staging.close();  // it will not be committed
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
    CKPT_TRY(const HeldRun held, hold_run(io, parent_path(save->root)));
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

/// Alone, no other process must agree: the commit follows at once.
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

}  // namespace ckpt
