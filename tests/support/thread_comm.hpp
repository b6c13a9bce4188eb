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

  /// Calls `body(comm)` once per rank, each in a separate thread, and joins them.
  void run(const std::function<void(Comm& comm)>& body) const;
  /// The same for code that takes ownership of its rank's table.
  void run_tables(const std::function<void(const ckpt_comm_table& table)>& body) const;
  /// From here on every request of every rank fails, those in flight too.
  void disconnect() const;
  enum class Loss : std::uint8_t {
    refused,    ///< that request cannot be started, and all ranks are disconnected
    in_flight,  ///< it is started, and all ranks are disconnected then
    silent,     ///< it never arrives, nor any later one of that rank: the others wait for it
  };
  /// The fate of request number `n` of a rank, counted from 0.
  void lose(int rank, std::uint64_t n, Loss how) const;
  /// The clock for deadlines of these ranks' Comms: the machine's time, and after `hurry` or a planned loss thousands
  /// of times as fast. A rank that waits for a lost one gives up at once, whatever its patience; a rank that waits for
  /// a slow one does not, even on a slow machine.
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
