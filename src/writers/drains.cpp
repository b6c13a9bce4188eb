#include "writers/drains.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine/comm/agree_after.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {

Result<> Drains::open(Io& io) {
  const DrainOptions& tiers = options_.directories;
  CKPT_TRY(const FileInfo local, io.stat(tiers.local_directory));
  CKPT_TRY(const FileInfo shared, io.stat(tiers.run_directory));
  if (local.device == shared.device && local.inode == shared.inode) {
    return fail(Errc::usage, tiers.local_directory + ": the local directory is that of the run");
  }
  CKPT_TRY(undrained_, find_undrained(io, tiers));
  CKPT_TRY(drainer_, Drainer::open(io, tiers));
  return {};
}

/// The checkpoints that any leader found, newest first. Collective.
Result<std::vector<Drains::Left>> Drains::left_on_all(const std::vector<Undrained>& mine) {
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

Result<> Drains::resume() {
  CKPT_TRY(const std::vector<Left> left, left_on_all(undrained_));
  if (!left.empty()) take_up(left.front());
  return {};
}

/// Drains a save that is durable already, on all ranks. Collective.
Drains::Save Drains::take_up(const Left& left) {
  const Undrained& undrained = left.undrained;
  const auto save = std::make_shared<SaveJob>(undrained.id);
  save->step = undrained.step;
  save->tiered = true;
  save->drain_leader = left.leader;
  save->phase = SaveJob::Phase::over;
  save->resolve(SaveOutcome{.name = undrained.name, .id = undrained.id.hex()});
  reports_.log(fmt::format("{}: left undrained by an earlier job; draining now", undrained.name));
  if (alone()) start(save, undrained.name);
  add(save);
  return save;
}

Result<std::vector<std::string>> Drains::drain_left(
    const std::function<Result<>(const std::function<Result<>(Io&)>&)>& on_disk,
    const std::function<Result<>(const PendingSave&)>& wait) {
  const DrainOptions& tiers = options_.directories;
  std::vector<Undrained> mine;
  const auto poll = [&](Io& io) -> Result<> {
    CKPT_TRY(mine, find_undrained(io, tiers));
    return {};
  };
  std::function<Result<>()> work;
  if (options_.nodes.leads(comm_.rank())) work = [&] { return on_disk(poll); };
  CKPT_CHECK(agree_after(comm_, options_.patience, work));
  CKPT_TRY(const std::vector<Left> left, left_on_all(mine));
  std::vector<std::string> given_up;
  for (const Left& each : left) {
    const auto drained = wait(*take_up(each));
    if (drained) break;
    Error why = drained.error();
    if (why.code == Errc::peer_failed && !why.verdict) return fail(std::move(why));
    const std::string text = fmt::format("{} is durable in {}, but not in {}: {}", each.undrained.name,
                                         tiers.local_directory, tiers.run_directory, why.message);
    const int exit = exit_code(why);
    if (exit == exit_code(Errc::corrupt) || exit == exit_code(Errc::incomplete)) {
      reports_.log(fmt::format("{}: will not be retried", text));
      given_up.push_back(text);
      continue;
    }
    why.message = text;
    why.hint =
        "make the run directory available and restart the job\n"
        "to resume from an older checkpoint, delete this one from the local directory of every node";
    // "There is none" would make a trainer start over.
    if (exit == exit_code(Errc::not_found)) why.code = Errc::io, why.verdict.reset();
    return fail(std::move(why));
  }
  return given_up;
}

void Drains::start(const Save& save, const std::string& name) {
  if (alone()) save->own_drain();
  drainer_->add(name, [save](Result<std::string> drained, double seconds) {
    save->finish_draining(std::move(drained), seconds);
  });
}

void Drains::add(const Save& save) {
  draining_.push_back(save);
  if (options_.nodes.several) {
    if (draining_.size() == 1) steps().start(save);
  } else if (!alone() && drainer_) {
    start(save, save->outcome()->name);
  }
}

bool Drains::drained() const {
  if (draining_.empty()) return false;
  const SaveJob& save = *draining_.front();
  return !steps().takes_part(save) || save.drain_ended();
}

Result<> Drains::conclude() {
  const Save save = draining_.front();
  const bool several = options_.nodes.several;
  Result<std::string> mine;
  if (steps().takes_part(*save)) mine = save->draining();
  const auto give_up = [&](Error error) {
    if (several) steps().drop(save);
    complete(save, fail(std::move(error)));
  };
  if (auto verdict = agree(comm_, deadline(), mine ? Result<>() : fail(mine.error())); !verdict) {
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return verdict;
    give_up(std::move(verdict).error());
    return {};
  }
  if (several) {
    const auto goes_on = steps().next(save);
    if (!goes_on && goes_on.error().code == Errc::peer_failed && !goes_on.error().verdict) return fail(goes_on.error());
    if (!goes_on) {
      give_up(goes_on.error());
      return {};
    }
    if (*goes_on) return {};
    CKPT_TRY(std::vector<std::string> names, comm_.gather(*mine, deadline()));
    if (comm_.is_root()) mine = std::move(names[static_cast<std::size_t>(save->drain_leader)]);
  }
  CKPT_CHECK(comm_.broadcast(*mine, deadline()));
  complete(save, std::move(mine));
  return {};
}

void Drains::complete(const Save& save, Result<std::string> name) {
  save->complete_drain(std::move(name));
  ++ended_count_;
  poll();
  if (options_.nodes.several && !draining_.empty()) steps().start(draining_.front());
}

void Drains::lose(const Error& error) {
  for (const auto& save : draining_) {
    if (options_.nodes.several) steps().drop(save);
    if (comm_.is_root() && !options_.nodes.several) {
      save->own_drain();
    } else {
      save->complete_drain(fail(error));
    }
  }
  poll();
}

void Drains::poll() {
  while (!draining_.empty() && draining_.front()->drained().known()) {
    const Save save = std::move(draining_.front());
    draining_.pop_front();
    reports_.report_failure(save->drained(),
                            fmt::format("step {}: durable in {}, but not in {}", save->step,
                                        options_.directories.local_directory, options_.directories.run_directory));
  }
  if (!drainer_) return;
  for (const std::string& note : drainer_->take_notes()) reports_.log(note);
}

void Drains::close() {
  for (const auto& save : draining_) {
    if (options_.nodes.several) {
      steps().drop(save);
    } else if (comm_.is_root()) {
      save->own_drain();
    }
  }
  if (drainer_) drainer_->finish();
  for (const auto& save : draining_) {
    save->complete_drain(fail(Errc::interrupted, "the run was closed before all ranks confirmed the drain"));
  }
  poll();
  drainer_.reset();
}

}  // namespace ckpt
