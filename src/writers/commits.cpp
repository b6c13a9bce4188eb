#include "writers/commits.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/io/exceptions_to_result.hpp"
#include "writers/save_content.hpp"

namespace ckpt {
namespace {

/// Ranks are lost; not the failure of one that all have agreed on.
bool is_loss(const Error& error) {
  return error.code == Errc::peer_failed && !error.verdict;
}

}  // namespace

Result<bool> Commits::act(bool all_written, bool all_published) {
  if (in_flight_.empty()) return false;
  const Save oldest = in_flight_.front();
  const bool is_writing = oldest->phase == SaveJob::Phase::writing;
  if (!(is_writing ? all_written : all_published)) return false;
  CKPT_CHECK(is_writing ? collect(oldest) : conclude(oldest));
  return true;
}

/// All ranks have written: rank 0 gets the records for the commit; or one failed, and all ranks learn it.
Result<> Commits::collect(const Save& save) {
  if (auto verdict = agree(comm_, deadline(), save->writing()); !verdict) {
    if (is_loss(verdict.error())) return verdict;
    complete(save, fail(std::move(verdict).error()));
    return {};
  }
  CKPT_TRY(std::vector<std::string> records, comm_.gather(save->record(), deadline()));
  save->phase = SaveJob::Phase::publishing;
  if (nodes_.several) return spread(save, records);
  if (comm_.is_root()) disk_.publish(save, std::move(records));
  return {};
}

/// Rank 0 seals the checkpoint that all have written; every leader publishes it. Collective.
Result<> Commits::spread(const Save& save, const std::vector<std::string>& records) {
  if (comm_.is_root()) {
    auto sealed = exceptions_to_result([&] { return sealed_text(save->manifest, records); });
    if (sealed) save->sealed = std::move(*sealed);
  }
  CKPT_CHECK(comm_.broadcast(save->sealed, deadline()));
  if (save->sealed.empty()) {
    complete(save, fail(Errc::internal, "rank 0 could not seal it"));
  } else if (nodes_.leads(comm_.rank())) {
    disk_.publish(save, {});
  } else {
    save->sealed.clear();
  }
  return {};
}

/// The leaders' commit has ended: all learn how.
Result<> Commits::conclude(const Save& save) {
  Result<std::string> mine;
  if (nodes_.leads(comm_.rank())) mine = save->publishing();
  if (auto verdict = agree(comm_, deadline(), mine ? Result<>() : fail(mine.error())); !verdict) {
    if (is_loss(verdict.error())) return verdict;
    if (nodes_.several && mine && !mine->empty()) disk_.take_back(save);  // other nodes lack their part of it
    complete(save, fail(std::move(verdict).error()));
    return {};
  }
  CKPT_CHECK(comm_.broadcast(*mine, deadline()));
  complete(save, SaveOutcome{.name = *mine, .id = save->id().hex()});
  return {};
}

void Commits::complete(const Save& save, const Result<SaveOutcome>& outcome) {
  const Save kept = save;  // `save` may be of the queue
  kept->phase = SaveJob::Phase::over;
  kept->resolve(outcome);
  std::erase(in_flight_, kept);
  ++ended_count_;
  disk_.drop(kept);  // in any outcome: nothing of it outlives the committer
  ended_(kept);
}

/// What this rank can know of a save without the others.
Result<SaveOutcome> Commits::outcome_without_peers(const Save& save, Error why) {
  if (save->phase == SaveJob::Phase::writing) save->staging->close();  // it will not be committed
  // With several nodes it is no longer known whether every node has its part.
  if (save->phase != SaveJob::Phase::publishing || nodes_.several) return fail(std::move(why));
  std::optional<std::string> name;
  if (comm_.is_root()) {
    // It can no longer be stopped; its outcome is valid on every rank.
    disk_.wait();
    if (save->published() && save->publishing()) name = *save->publishing();
  } else if (auto seen = disk_.find(*save)) {
    name = std::move(*seen);
  } else {
    why.message += "; it may exist nevertheless: " + seen.error().message;
  }
  if (!name) return fail(std::move(why));
  return SaveOutcome{.name = std::move(*name), .id = save->id().hex()};
}

void Commits::lose(const Error& error) {
  while (!in_flight_.empty()) {
    const Save save = in_flight_.front();
    complete(save, outcome_without_peers(save, error));
  }
}

void Commits::give_up(const Error& error) {
  while (!in_flight_.empty()) complete(in_flight_.front(), fail(error));
}

void Commits::poll() {
  while (!in_flight_.empty() && in_flight_.front()->resolved()) {
    const Save save = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++ended_count_;
    ended_(save);
  }
}

}  // namespace ckpt
