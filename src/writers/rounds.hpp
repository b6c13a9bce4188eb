#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "writers/save_event.hpp"

namespace ckpt {

/// The rounds of a job's saves: one small all-reduce per step, by which all ranks learn how far the others are. It
/// knows no save and no disk; `Actions` supplies the message and acts on the result.
///
/// 1. A round starts with this rank's vote and progress, and travels while training continues.
/// 2. The next call completes it. All ranks then have the same result: what any rank voted for, and the progress of the
///    slowest.
/// 3. All ranks act on it, in further collectives. As long as something follows, further rounds are completed at once;
///    then the next one starts.
///
/// One thread. With one rank there is nothing to send.
class Rounds {
 public:
  /// The message of a rank in every round.
  struct Vote {
    bool stop = false;  ///< of any rank
    bool due = false;   ///< of rank 0: a save is due by its clock
  };
  /// What has happened to the oldest save and the oldest drain, on this rank; as a result, on all ranks.
  struct Progress {
    bool written = false;
    bool published = false;
    bool drained = false;
    std::uint64_t ended = 0;  ///< saves and drains that are over: the same on all ranks
  };
  struct Actions {
    std::function<Progress()> progress{};
    /// Collective: what follows from the progress of all ranks. Returns whether something did, equal on all ranks.
    std::function<Result<bool>(const Progress& of_all)> act{};
    /// The other ranks are lost: ends everything that needs them.
    std::function<void(const Error& error)> lose{};
    /// With one rank, instead of a round: takes note of what has ended in the background.
    std::function<void()> poll{};
  };

  /// `patience`: a rank that takes longer to join a round is lost.
  Rounds(Comm& comm, std::chrono::milliseconds patience, Actions actions)
      : comm_(comm), patience_(patience), actions_(std::move(actions)) {}

  /// Completes the round in flight and starts another. Returns the votes of the completed one: a vote takes effect one
  /// call later, on the same call of every rank. Collective.
  Result<Vote> round(Vote mine);
  /// Completes the round in flight, if there is one: no other collective is started before. Its votes are kept for the
  /// next round. Collective.
  Result<> finish_pending();
  /// Rounds until nothing follows: saves go as far as they can without waiting for a disk. Collective.
  Result<> settle();
  /// The save that was due has begun.
  void drop_due() { carried_.due = false; }
  /// Rounds until all ranks know the event (its outcome), or the time is over on any rank (`locked`, with `late`).
  /// Collective.
  /// tells  the caller reports the outcome, so no other code must
  Result<> wait(const SaveEvent& event, std::chrono::milliseconds timeout, const char* late,
                bool marks_reported = false);
  /// If `error` says that other ranks are lost, ends everything that needs them. Returns it.
  Error lose(Error error);

 private:
  struct Word;
  struct RoundResult {
    Vote vote{};
    bool timed_out = false;
    bool moved = false;  ///< something followed
  };
  bool alone() const { return comm_.ranks() == 1; }
  Result<> start(Vote mine, bool timed_out);
  Result<RoundResult> finish();
  Result<bool> complete();
  Result<> wait_known(const SaveEvent& event, Deadline until);

  Comm& comm_;
  const std::chrono::milliseconds patience_;
  const Actions actions_;
  std::vector<std::uint64_t> words_{};  // of the round in flight
  Comm::Pending pending_{};
  Vote carried_{};  // the result of a wait, for the next round
};

}  // namespace ckpt
