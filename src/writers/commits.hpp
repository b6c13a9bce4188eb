#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "writers/commit_disk.hpp"
#include "writers/nodes.hpp"
#include "writers/save_job.hpp"

namespace ckpt {

/// When a save is committed: the agreement of all ranks on the saves in flight, oldest first.
///
/// 1. writing: each rank writes its part. When a round shows that all have, they vote: if one failed, the save fails on
///    all ranks; else rank 0 gets the records of all.
/// 2. publishing: rank 0 makes it a checkpoint (several nodes: it seals it, and every leader publishes its node's
///    part). When a round shows that this has ended, they vote again; if one leader failed, the others take back their
///    part.
/// 3. over: every rank has the same outcome.
///
/// The rounds (rounds.hpp) carry `written` and `published` and call `act`. The disk is a CommitDisk. The trainer's
/// thread.
class Commits {
 public:
  using Save = std::shared_ptr<SaveJob>;
  /// `ended`: called for each save that is over, after its events are settled.
  Commits(Comm& comm, std::chrono::milliseconds patience, Nodes nodes, CommitDisk& disk,
          std::function<void(const Save&)> ended)
      : comm_(comm), patience_(patience), nodes_(nodes), disk_(disk), ended_(std::move(ended)) {}

  /// The save is in flight from here on, on all ranks.
  void add(Save save) { in_flight_.push_back(std::move(save)); }
  /// Oldest first; the same on all ranks.
  const std::deque<Save>& in_flight() const { return in_flight_; }
  /// How many are no longer in flight; equal on all ranks.
  std::uint64_t ended_count() const { return ended_count_; }

  /// Of the oldest save: whether this rank's part is written, and this rank has no publication of it to wait for. If
  /// none is in flight yet, one may be by the time the round is completed: this is not about it.
  bool written() const { return !in_flight_.empty() && in_flight_.front()->written(); }
  bool published() const {
    return !in_flight_.empty() && (!nodes_.leads(comm_.rank()) || in_flight_.front()->published());
  }
  /// What follows when both are known of all ranks. Returns whether something did. Collective.
  /// errors  peer_failed: ranks are lost
  Result<bool> act(bool all_written, bool all_published);

  /// Other ranks were lost: saves in flight fail here, unless rank 0 had committed them.
  void lose(const Error& error);
  /// Saves in flight fail here.
  void give_up(const Error& error);
  /// One rank, where the background settles saves: takes note of those that are over.
  void poll();

 private:
  Deadline deadline() const { return comm_.now() + patience_; }
  Result<> collect(const Save& save);
  Result<> spread(const Save& save, const std::vector<std::string>& records);
  Result<> conclude(const Save& save);
  void complete(const Save& save, const Result<SaveOutcome>& outcome);
  Result<SaveOutcome> outcome_without_peers(const Save& save, Error why);

  Comm& comm_;
  const std::chrono::milliseconds patience_;
  const Nodes nodes_;
  CommitDisk& disk_;
  const std::function<void(const Save&)> ended_;
  std::deque<Save> in_flight_{};
  std::uint64_t ended_count_ = 0;
};

}  // namespace ckpt
