#include "writers/rounds.hpp"

#include <cstddef>
#include <thread>
#include <utility>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRoundNap = std::chrono::milliseconds(1);  // between rounds that wait for the disk
constexpr unsigned kEagerTests = 1000;                    // most rounds are complete by then
constexpr auto kTestNap = std::chrono::microseconds(100);

}  // namespace

/// The values of a round's all-reduce. The maximum of a value and of its complement are equal if all ranks agree.
struct Rounds::Word {
  enum : std::size_t { stop, due, unwritten, unpublished, undrained, timed_out, ended, not_ended, count };
};

Result<> Rounds::start(Vote mine, bool timed_out) {
  const Progress here = actions_.progress();
  words_.assign(Word::count, 0);
  words_[Word::stop] = mine.stop ? 1 : 0;
  words_[Word::due] = mine.due ? 1 : 0;
  words_[Word::timed_out] = timed_out ? 1 : 0;
  words_[Word::unwritten] = here.written ? 0 : 1;
  words_[Word::unpublished] = here.published ? 0 : 1;
  words_[Word::undrained] = here.drained ? 0 : 1;
  words_[Word::ended] = here.ended;
  words_[Word::not_ended] = ~here.ended;
  CKPT_TRY(pending_, comm_.start_max(words_));
  return {};
}

Result<Rounds::RoundResult> Rounds::finish() {
  const Deadline until = comm_.now() + patience_;
  for (unsigned tests = 0;; ++tests) {
    CKPT_TRY(const bool done, pending_.test());
    if (done) break;
    if (comm_.now() >= until) {
      pending_ = {};
      return fail(Errc::peer_failed, "not all ranks answered before the deadline");
    }
    if (tests > kEagerTests) std::this_thread::sleep_for(kTestNap);
  }
  pending_ = {};
  if (words_[Word::ended] != ~words_[Word::not_ended]) {
    return fail(Errc::internal, "the ranks call save functions in different orders");
  }
  RoundResult result{.vote = {.stop = words_[Word::stop] != 0, .due = words_[Word::due] != 0},
                     .timed_out = words_[Word::timed_out] != 0};
  CKPT_TRY(result.moved, actions_.act({.written = words_[Word::unwritten] == 0,
                                       .published = words_[Word::unpublished] == 0,
                                       .drained = words_[Word::undrained] == 0,
                                       .ended = words_[Word::ended]}));
  return result;
}

Result<Rounds::Vote> Rounds::round(Vote mine) {
  if (alone()) {
    actions_.poll();
    return mine;
  }
  if (pending_.active()) {
    CKPT_TRY(const bool moved, complete());
    if (moved) CKPT_CHECK(settle());
  }
  if (auto started = start(mine, false); !started) return fail(lose(std::move(started).error()));
  return std::exchange(carried_, Vote{});
}

Result<> Rounds::finish_pending() {
  if (pending_.active()) CKPT_CHECK(complete());
  return {};
}

/// Completes the round in flight. Returns whether something followed.
Result<bool> Rounds::complete() {
  auto result = finish();
  if (!result) return fail(lose(std::move(result).error()));
  carried_ = {.stop = carried_.stop || result->vote.stop, .due = carried_.due || result->vote.due};
  return result->moved;
}

Result<> Rounds::settle() {
  if (alone()) return {};
  CKPT_CHECK(finish_pending());
  for (bool moved = true; moved;) {
    if (auto started = start({}, false); !started) return fail(lose(std::move(started).error()));
    CKPT_TRY(moved, complete());
  }
  return {};
}

Error Rounds::lose(Error error) {
  if (error.code != Errc::peer_failed || error.verdict) return error;
  pending_ = {};
  actions_.lose(error);
  return error;
}

/// Until this rank knows the event, or a rank's time is over.
Result<> Rounds::wait_known(const SaveEvent& event, Deadline until) {
  CKPT_CHECK(finish_pending());
  for (bool timed_out = false; !event.known() && !timed_out;) {
    CKPT_CHECK(start({}, Clock::now() >= until));
    CKPT_TRY(const RoundResult result, finish());
    timed_out = result.timed_out;
    if (!event.known() && !timed_out) event.wait_for(kRoundNap);
  }
  return {};
}

Result<> Rounds::wait(const SaveEvent& event, std::chrono::milliseconds timeout, const char* late,
                      bool marks_reported) {
  const Deadline until = Clock::now() + timeout;
  if (alone()) {
    event.wait_for(timeout);
    actions_.poll();
  } else if (auto waited = wait_known(event, until); !waited) {
    Error error = lose(std::move(waited).error());
    // Rank 0's drains continue alone.
    if (comm_.is_lost() && comm_.is_root()) {
      event.wait_for(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
    }
    if (!event.known()) return fail(std::move(error));
  }
  if (!event.known()) return fail(Errc::locked, late);
  auto outcome = marks_reported ? event.take_outcome() : event.outcome();
  return outcome ? Result<>() : fail(std::move(outcome).error());
}

}  // namespace ckpt
