// The part of the saver that knows of two tiers. Rank 0 drains; the others hear of it in the rounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/saver.hpp"

namespace ckpt {

/// Ranks that disagree would call different collectives from here on. Collective.
Result<> Saver::agree_on_tiers(Io& io) {
  const std::uint64_t mine = tiered() ? 1 : 0;
  std::uint64_t words[2] = {mine, 1 - mine};
  CKPT_CHECK(comm_.max(words, deadline()));
  if (words[0] == 1 && words[1] == 1) {
    return fail(Errc::usage, "some ranks give a local directory, others do not");
  }
  return tiered() && !alone() ? find_nodes(io) : Result<>();
}

DrainOptions Saver::drain_options() const {
  return {.local_directory = options_.local_directory,
          .run_directory = options_.run_directory,
          .bytes_per_second = options_.drain_bytes_per_second,
          .keep = options_.local_keep,
          .foreign_names = options_.foreign_names};
}

/// On leaders.
Result<> Saver::open_tiers(Io& io) {
  CKPT_CHECK(prepare_directory(io, options_.local_directory));
  CKPT_TRY(const FileInfo local, io.stat(options_.local_directory));
  CKPT_CHECK(make_directory(io, options_.run_directory));  // rank 0 may not have got there
  CKPT_TRY(const FileInfo shared, io.stat(options_.run_directory));
  if (local.device == shared.device && local.inode == shared.inode) {
    return fail(Errc::usage, options_.local_directory + ": the local directory is that of the run");
  }
  CKPT_TRY(undrained_, find_undrained(io, drain_options()));
  CKPT_TRY(drainer_, Drainer::open(io, drain_options()));
  return {};
}

/// The checkpoints that any leader found, newest first. Collective.
Result<std::vector<Saver::Left>> Saver::left_on_all(const std::vector<Undrained>& mine) {
  std::string text;
  for (const Undrained& each : mine) text += fmt::format("{} {} {}\n", each.id.hex(), comm_.rank(), each.name);
  CKPT_TRY(const std::vector<std::string> texts, comm_.gather(text, deadline()));
  if (comm_.is_root()) text = fmt::format("{}", fmt::join(texts, ""));
  CKPT_CHECK(comm_.broadcast(text, deadline()));
  std::vector<Left> left;
  std::istringstream lines(text);
  std::string hex;
  std::string name;
  for (int leader = 0; lines >> hex >> leader >> name;) {
    const auto id = Hash128::from_hex(hex);
    const auto named = CheckpointName::parse(name);
    if (!id || !named) return fail(Errc::internal, "rank 0 named no checkpoint to drain");
    const bool known =
        std::any_of(left.begin(), left.end(), [&](const Left& other) { return other.undrained.id == *id; });
    if (!known) left.push_back({.undrained = {.name = name, .step = named->step, .id = *id}, .leader = leader});
  }
  std::stable_sort(left.begin(), left.end(), [](const Left& a, const Left& b) {
    const auto generation = [](const Left& of) { return CheckpointName::parse(of.undrained.name)->generation; };
    return std::pair(generation(a), a.undrained.id.hex()) > std::pair(generation(b), b.undrained.id.hex());
  });
  return left;
}

/// Drains a save that is durable already, on all ranks. Collective.
std::shared_ptr<PendingSave> Saver::take_up(const Left& left) {
  const Undrained& undrained = left.undrained;
  const auto save = std::make_shared<PendingSave>(undrained.id);
  save->step = undrained.step;
  save->tiered = true;
  save->drain_leader = left.leader;
  save->phase = PendingSave::Phase::over;
  save->resolve(SaveOutcome{.name = undrained.name, .id = undrained.id.hex()});
  log(fmt::format("{}: not drained by the job that saved it; draining now", undrained.name));
  if (alone()) start_drain(save, undrained.name);
  drain_later(save);
  return save;
}

Result<std::vector<std::string>> Saver::drain_left(std::chrono::milliseconds timeout) {
  std::vector<Undrained> mine;
  const auto look = [&](Io& io) -> Result<> {
    CKPT_TRY(mine, find_undrained(io, drain_options()));
    return {};
  };
  std::function<Result<>()> work;
  if (leads()) work = [&] { return on_committer(look); };
  CKPT_CHECK(agree_after(comm_, options_.patience, work));
  CKPT_TRY(const std::vector<Left> left, left_on_all(mine));
  std::vector<std::string> given_up;
  for (const Left& each : left) {
    const auto drained = wait_drained(take_up(each), timeout);
    if (drained) break;
    Error why = drained.error();
    if (why.code == Errc::peer_failed && !why.verdict) return fail(std::move(why));
    const std::string text = fmt::format("{} is durable in {}, but not in {}: {}", each.undrained.name,
                                         options_.local_directory, options_.run_directory, why.message);
    const int exit = exit_code(why);
    if (exit == exit_code(Errc::corrupt) || exit == exit_code(Errc::incomplete)) {
      log(fmt::format("{}: given up", text));
      given_up.push_back(text);
      continue;
    }
    why.message = text;
    why.hint =
        "restore access to the run directory and restart; to resume from an older checkpoint instead, delete this one "
        "from the local directory of every node";
    // "There is none" would make a trainer start over.
    if (exit == exit_code(Errc::not_found)) why.code = Errc::io, why.verdict.reset();
    return fail(std::move(why));
  }
  return given_up;
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
    const auto goes_on = next_step(save);
    if (!goes_on && goes_on.error().code == Errc::peer_failed && !goes_on.error().verdict) return fail(goes_on.error());
    if (!goes_on) {
      drop_drain(save);
      settle_drain(save, fail(goes_on.error()));
      return {};
    }
    if (*goes_on) return {};
    CKPT_TRY(std::vector<std::string> told, comm_.gather(name, deadline()));
    if (comm_.is_root()) name = std::move(told[static_cast<std::size_t>(save->drain_leader)]);
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

/// Drains continue without the other ranks, which can no longer be informed.
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
    tell_failure(save->drained(), fmt::format("step {}: durable in {}, but not in {}", save->step,
                                              options_.local_directory, options_.run_directory));
  }
  if (!drainer_) return;
  for (const std::string& note : drainer_->take_notes()) log(note);
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
    save->settle_drain(fail(Errc::interrupted, "the run was closed before all ranks knew of its drain"));
  }
  forget_drained();
}

}  // namespace ckpt
