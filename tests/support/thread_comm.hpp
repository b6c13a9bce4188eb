#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/comm.hpp"

namespace ckpt {

/// Ranks that are threads of one process, over the same table that a plug-in or a trainer fills. A collective is done
/// when all ranks have started it; one that a rank never starts stays undone.
class ThreadRanks {
 public:
  explicit ThreadRanks(int ranks);
  ~ThreadRanks();

  /// Calls `body(comm)` once a rank, each in a thread of its own, and joins them.
  void run(const std::function<void(Comm& comm)>& body) const;
  /// The same, for what takes its rank's table over.
  void run_tables(const std::function<void(const ckpt_comm_table& table)>& body) const;
  /// From here on every request of every rank fails, those in flight too.
  void disconnect() const;
  enum class Loss : std::uint8_t {
    refused,    ///< that request cannot be started, and all ranks are disconnected
    in_flight,  ///< it is started, and all ranks are disconnected then
    silent,     ///< it is never heard of, nor any later one of that rank: the others wait for it
  };
  /// What becomes of request number `n` of a rank, counted from 0.
  void lose(int rank, std::uint64_t n, Loss how) const;
  /// What deadlines of Comms of these ranks go by: the machine's time, and from `hurry` or a planned loss on thousands
  /// of times as fast. Who waits for a rank that is gone gives up at once, however patient he is; who waits for one
  /// that is slow, on a slow machine too, does not.
  Comm::Clock clock() const;
  void hurry() const;
  /// How many requests a rank has started.
  std::uint64_t requests(int rank) const;

  struct Group;

 private:
  std::shared_ptr<Group> group_;
  int ranks_;
};

}  // namespace ckpt
