// The part of the saver that knows of two tiers. Rank 0 drains; the others hear of it in the rounds.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/run_directory.hpp"
#include "writers/saver.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kIdDigits = 32;

}  // namespace

/// Ranks that disagree would call different collectives from here on. Collective.
Result<> Saver::agree_on_tiers(Io& io) {
  const std::uint64_t mine = tiered() ? 1 : 0;
  std::uint64_t words[2] = {mine, 1 - mine};
  CKPT_CHECK(comm_.max(words, deadline()));
  if (words[0] == 1 && words[1] == 1) {
    return fail(Errc::usage, "open: some ranks give a local directory, others do not");
  }
  return tiered() && !alone() ? find_nodes(io) : Result<>();
}

/// On leaders.
Result<> Saver::open_tiers(Io& io) {
  CKPT_CHECK(prepare_directory(io, options_.local_directory));
  CKPT_TRY(const FileInfo local, io.stat(options_.local_directory));
  CKPT_CHECK(make_directory(io, options_.run_directory));  // rank 0 may not have got there
  CKPT_TRY(const FileInfo shared, io.stat(options_.run_directory));
  if (local.device == shared.device && local.inode == shared.inode) {
    return fail(Errc::usage, options_.local_directory + ": open: the local directory is that of the run");
  }
  const DrainOptions options{.local_directory = options_.local_directory,
                             .run_directory = options_.run_directory,
                             .bytes_per_second = options_.drain_bytes_per_second,
                             .keep = options_.local_keep};
  CKPT_TRY(undrained_, find_undrained(io, options));
  CKPT_TRY(drainer_, Drainer::open(io, options));
  return {};
}

/// What an earlier job left: a save that is durable already, on all ranks. Collective.
Result<> Saver::take_up_undrained() {
  std::string text;
  if (undrained_) text = fmt::format("{}{} {}", undrained_->id.hex(), undrained_->step, undrained_->name);
  CKPT_CHECK(comm_.broadcast(text, deadline()));
  if (text.empty()) return {};
  const auto id = Hash128::from_hex(std::string_view(text).substr(0, kIdDigits));
  const std::size_t space = text.find(' ');
  if (!id || space == std::string::npos) return fail(Errc::internal, "open: rank 0 told of no checkpoint to drain");
  const std::string name = text.substr(space + 1);
  const auto named = CheckpointName::parse(name);
  if (!named) return fail(Errc::internal, name + ": open: not the name of a checkpoint");
  const auto save = std::make_shared<PendingSave>(*id);
  save->step = named->step;
  save->tiered = true;
  save->phase = PendingSave::Phase::over;
  save->resolve(SaveOutcome{.name = name, .id = id->hex()});
  log(fmt::format("{}: was not drained by the job that saved it: drained now", name));
  if (alone()) start_drain(save, name);
  drain_later(save);
  return {};
}

void Saver::start_drain(const std::shared_ptr<PendingSave>& save, const std::string& name) {
  if (alone()) save->own_drain();
  drainer_->add(name, [save](Result<std::string> drained, double seconds) {
    save->finish_draining(std::move(drained), seconds);
  });
}

/// From now on the ranks' rounds are about this drain, too.
void Saver::drain_later(const std::shared_ptr<PendingSave>& save) {
  draining_.push_back(save);
  if (several_nodes_) {
    if (draining_.size() == 1) start_step(save);
  } else if (!alone() && drainer_) {
    start_drain(save, save->outcome()->name);
  }
}

bool Saver::front_undrained() const {
  return draining_.empty() || (takes_part(*draining_.front()) && !draining_.front()->drain_ended());
}

/// Rank 0's drain has ended: all learn how.
Result<> Saver::conclude_drain() {
  const std::shared_ptr<PendingSave> save = draining_.front();
  Result<> mine;
  std::string name;
  if (takes_part(*save)) {
    const std::lock_guard held(save->mutex_);
    if (*save->drain_) {
      name = **save->drain_;
    } else {
      mine = fail(save->drain_->error());
    }
  }
  if (auto verdict = agree(comm_, deadline(), std::move(mine)); !verdict) {
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return verdict;
    if (several_nodes_) drop_drain(save);
    settle_drain(save, fail(std::move(verdict).error()));
    return {};
  }
  if (several_nodes_) {
    CKPT_TRY(const bool goes_on, next_step(save));
    if (goes_on) return {};
  }
  CKPT_CHECK(comm_.broadcast(name, deadline()));
  settle_drain(save, std::move(name));
  return {};
}

void Saver::settle_drain(const std::shared_ptr<PendingSave>& save, Result<std::string> name) {
  save->settle_drain(std::move(name));
  ++resolved_;
  forget_drained();
  if (several_nodes_ && !draining_.empty()) start_step(draining_.front());
}

/// Drains go on without the other ranks; those cannot be told any more.
void Saver::lose_drains(const Error& error) {
  for (const auto& save : draining_) {
    if (several_nodes_) drop_drain(save);
    if (comm_.is_root() && !several_nodes_) {
      save->own_drain();
    } else {
      save->settle_drain(fail(error));
    }
  }
  forget_drained();
}

void Saver::forget_drained() {
  while (!draining_.empty() && draining_.front()->drained().known()) {
    const std::shared_ptr<PendingSave> save = std::move(draining_.front());
    draining_.pop_front();
    if (const auto outcome = save->drained().outcome(); !outcome) {
      log(fmt::format("step {}: durable in {}, not in {}: {}", save->step, options_.local_directory,
                      options_.run_directory, outcome.error().message));
    }
  }
  if (!drainer_) return;
  for (const std::string& note : drainer_->take_notes()) log(note);
}

Result<> Saver::wait_drained(const std::shared_ptr<PendingSave>& save, std::chrono::milliseconds timeout) {
  return wait_for(save->drained(), timeout, "save: wait: not in the run's directory within the time given");
}

void Saver::close_drains() {
  for (const auto& save : draining_) {
    if (several_nodes_) {
      drop_drain(save);
    } else if (comm_.is_root()) {
      save->own_drain();
    }
  }
  drainer_.reset();
  for (const auto& save : draining_) {
    save->settle_drain(fail(Errc::interrupted, "save: the store was closed before all ranks knew of its drain"));
  }
  forget_drained();
}

}  // namespace ckpt
