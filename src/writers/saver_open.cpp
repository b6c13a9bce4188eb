// How a saver is opened, and how its parts are connected: what each of them reports, and to which other one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/run/run.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/saver.hpp"

namespace ckpt {
namespace {

// Leaves that are copied, hashed and written at the same time: the disk's queue of 8 stays full.
constexpr std::uint64_t kLeastStagedLeaves = 16;

/// A directory, after removing leftovers of crashed saves.
Result<> prepare_directory(Io& io, const std::string& directory, std::vector<std::string>& notes) {
  CKPT_CHECK(make_directory(io, directory));
  CKPT_TRY(const HeldRun held, hold_run(io, directory));
  CKPT_TRY(const SweptPartials swept, sweep_partials(io, directory));
  for (const std::string& name : swept.removed) {
    notes.push_back(fmt::format("{}: removed {}, left by a crashed save", directory, name));
  }
  for (const Error& kept : swept.kept) notes.push_back("kept, although a crashed save left it: " + kept.message);
  return {};
}

}  // namespace

std::uint64_t Saver::smallest_staging_bytes() {
  return kLeastStagedLeaves * kRunBufferBytes;
}

Result<std::unique_ptr<Saver>> Saver::open(Io& io, Comm& comm, Options options) {
  std::unique_ptr<Saver> saver(new Saver(comm, std::move(options)));
  const Options& wanted = saver->options_;
  CKPT_TRY(saver->nodes_, find_nodes(comm, wanted.patience, io, wanted.local_directory));
  saver->drains_.emplace(comm,
                         Drains::Options{.directories = {.local_directory = wanted.local_directory,
                                                         .run_directory = wanted.run_directory,
                                                         .bytes_per_second = wanted.drain_bytes_per_second,
                                                         .keep = wanted.local_keep,
                                                         .foreign_names = wanted.foreign_names,
                                                         .check_removable = wanted.check_removable},
                                         .patience = wanted.patience,
                                         .nodes = saver->nodes_},
                         saver->reports_);
  std::vector<std::string> notes;
  const auto opened = agree_after(comm, wanted.patience, [&] { return saver->open_here(io, notes); });
  for (const std::string& note : notes) saver->reports_.log(note);
  CKPT_CHECK(opened);
  saver->commits_.emplace(comm, wanted.patience, saver->nodes_, *saver->committer_,
                          [saver = saver.get()](const auto& save) { saver->save_ended(save); });
  if (saver->tiered()) CKPT_CHECK(saver->drains_->resume());
  return saver;
}

Result<> Saver::open_here(Io& io, std::vector<std::string>& notes) {
  const std::uint64_t bytes = std::max(options_.staging_bytes, smallest_staging_bytes());
  CKPT_TRY(pool_, BufferPool::open({.buffer_bytes = kRunBufferBytes,
                                    .buffer_count = static_cast<std::size_t>(bytes / kRunBufferBytes)}));
  if (options_.staging_bytes != 0) pool_->warm();  // staging saves the trainer's time
  CKPT_TRY(auto flusher_io, io.new_instance());
  std::unique_ptr<Io> committer_io;
  if (leads()) {
    CKPT_TRY(committer_io, io.new_instance());
    CKPT_CHECK(prepare_directories(*committer_io, notes));
  }
  flusher_.emplace(std::move(flusher_io), *pool_,
                   Flusher::Options{.copy_threads = options_.copy_threads,
                                    .write_threads = options_.write_threads,
                                    .written = [this](const auto& save) { part_written(save); }});
  committer_.emplace(
      std::move(committer_io), *flusher_,
      Committer::Options{.home = home(),
                         .check_removable = options_.check_removable,
                         .least_generation = [this] { return drains_->least_generation(); },
                         .published = [this](const auto& save, const auto& name) { save_published(save, name); }});
  return {};
}

/// On leaders.
Result<> Saver::prepare_directories(Io& io, std::vector<std::string>& notes) {
  if (comm_.is_root()) CKPT_CHECK(prepare_directory(io, options_.run_directory, notes));
  if (!tiered()) return {};
  CKPT_CHECK(prepare_directory(io, options_.local_directory, notes));
  CKPT_CHECK(make_directory(io, options_.run_directory));  // rank 0 may not have made it yet
  return drains_->open(io);
}

Rounds::Actions Saver::round_actions() {
  return {.progress =
              [this] {
                return Rounds::Progress{.written = commits_->written(),
                                        .published = commits_->published(),
                                        .drained = drains_->drained(),
                                        .ended = commits_->ended_count() + drains_->ended_count()};
              },
          .act = [this](const Rounds::Progress& of_all) -> Result<bool> {
            CKPT_TRY(const bool committed, commits_->act(of_all.written, of_all.published));
            if (of_all.drained) CKPT_CHECK(drains_->conclude());
            return committed || of_all.drained;
          },
          .lose =
              [this](const Error& error) {
                commits_->lose(error);
                drains_->lose(error);
              },
          .poll = [this] { poll(); }};
}

void Saver::poll() {
  commits_->poll();
  drains_->poll();
}

/// In the flusher's thread. Alone, no other process must agree: the commit follows at once.
void Saver::part_written(const std::shared_ptr<SaveJob>& save) {
  if (!alone()) return;
  if (auto written = save->writing(); !written) {
    committer_->drop_unused(save);
    save->resolve(fail(std::move(written).error()));
  } else {
    committer_->publish(save, {save->record()});
  }
}

/// In the committer's thread: the same.
void Saver::save_published(const std::shared_ptr<SaveJob>& save, const Result<std::string>& name) {
  if (!alone()) return;
  if (!name) {
    save->resolve(fail(name.error()));
    return;
  }
  save->resolve(SaveOutcome{.name = *name, .id = save->id().hex()});
  if (tiered()) drains_->start(save, *name);
}

void Saver::save_ended(const std::shared_ptr<SaveJob>& save) {
  reports_.report_failure(save->durable(), fmt::format("step {}: not saved", save->step));
  if (save->tiered && save->outcome()) drains_->add(save);
}

}  // namespace ckpt
