// The rounds of the saver: one small all-reduce per step, by which all ranks learn the outcome of their saves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "engine/io/caught.hpp"
#include "engine/store/run_directory.hpp"
#include "writers/save_record.hpp"
#include "writers/saver.hpp"

namespace ckpt {
/// The values of a round's all-reduce. The maximum of a value and of its complement are equal if all ranks agree.
struct Saver::Word {
  enum : std::size_t { stop, due, unwritten, unpublished, undrained, timed_out, resolved, not_resolved, count };
};

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
    if (comm_.now() >= until) {
      pending_ = {};
      return fail(Errc::peer_failed, "not all ranks answered before the deadline");
    }
    if (tests > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  pending_ = {};
  if (words_[Word::resolved] != ~words_[Word::not_resolved]) {
    return fail(Errc::internal, "the ranks call save functions in different orders");
  }
  timed_out = words_[Word::timed_out] != 0;
  const Vote told{.stop = words_[Word::stop] != 0, .due = words_[Word::due] != 0};
  CKPT_CHECK(act());
  return told;
}

/// The actions of all ranks after a round, on the same words.
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

/// All ranks have written: rank 0 gets the records for the commit; or one failed, and all ranks learn it.
Result<> Saver::collect(const std::shared_ptr<PendingSave>& save) {
  Result<> mine;
  {
    const std::lock_guard held(save->mutex_);
    if (!*save->leaves_) mine = fail(save->leaves_->error());
  }
  if (auto verdict = agree(comm_, deadline(), std::move(mine)); !verdict) {
    if (verdict.error().code == Errc::peer_failed && !verdict.error().verdict) return verdict;  // it was lost
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
  drop_when_flushed(save);  // in any outcome: nothing of it outlives the committer
  tell_save(*save);
  if (save->tiered && save->outcome()) drain_later(save);
}

/// A trainer need not ask how a save ended; its user wants to know all the same.
void Saver::tell_failure(const SaveEvent& event, const std::string& what) {
  const auto outcome = event.outcome();
  if (outcome) return;
  Error error = outcome.error();
  error.message = fmt::format("{}: {}", what, error.message);
  if (const auto& told = options_.log_failure ? options_.log_failure : options_.log) told(error.message);
  untold_.add(event, std::move(error));
}

void Saver::tell_save(const PendingSave& save) {
  tell_failure(save.durable(), fmt::format("step {}: not saved", save.step));
}

/// Other ranks were lost: saves in flight fail here, unless rank 0 had committed them.
Error Saver::lose_peers(Error error) {
  if (error.code != Errc::peer_failed || error.verdict) return error;
  pending_ = {};
  while (!in_flight_.empty()) {
    const std::shared_ptr<PendingSave> save = in_flight_.front();
    std::optional<std::string> name;
    Error why = error;
    if (save->phase == PendingSave::Phase::writing) save->staging->close();  // it will not be committed
    if (several_nodes_) {
      // Whether every node has its part is no longer known.
    } else if (save->phase == PendingSave::Phase::publishing && comm_.is_root()) {
      // It can no longer be stopped; its outcome is valid on every rank.
      static_cast<void>(on_committer([](Io&) -> Result<> { return {}; }));
      const std::lock_guard held(save->mutex_);
      if (save->published_ && *save->published_) name = **save->published_;
    } else if (save->phase == PendingSave::Phase::publishing) {
      std::promise<void> looked;
      flusher_->add([&](Io& io) {
        const auto seen = caught([&]() -> Result<> {
          CKPT_TRY(name, find_committed(io, home(), save->step, save->id()));
          return {};
        });
        if (!seen) why.message += "; it may be there all the same: " + seen.error().message;
        looked.set_value();
      });
      looked.get_future().wait();
    }
    if (name) {
      settle(save, SaveOutcome{.name = *name, .id = save->id().hex()});
    } else {
      settle(save, fail(std::move(why)));
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
    tell_save(*save);
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
