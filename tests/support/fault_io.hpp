#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "format/hash.hpp"

namespace ckpt {

/// Counts the operations of all Ios that share it and says which of them fail. Thread-safe.
class FaultPlan {
 public:
  /// Operation number `n`, counted from 0, and `count - 1` after it fail; `carried_out`: they take effect and only
  /// their answers are lost, as with a network file system.
  void fail_once(std::uint64_t n, Errc code, bool carried_out = false, std::uint64_t count = 1);
  /// Operation `n` and all after it fail, without effect.
  void fail_from(std::uint64_t n, Errc code);
  /// Operation `n`, where it is a read or a write, moves half of its bytes: a write then fails with `code`, a read has
  /// met the end of the file. Any other operation fails without effect.
  void tear_once(std::uint64_t n, Errc code);
  /// Calls `act` when operation `n` begins, on its thread; it then passes. Other threads' operations
  /// pass meanwhile.
  void call_at(std::uint64_t n, std::function<void()> act);
  /// Every operation takes so much longer from now on, whatever else is planned.
  void slow_down(std::chrono::milliseconds time);
  /// Only these operations ("write", "fdatasync", ...) count from now on, the others pass. Empty: all count.
  void count_only(std::set<std::string> operations);
  void clear();
  /// From now on every Io::reap fails, as with a ring that the kernel has closed.
  void break_queues();
  bool queues_are_broken() const;
  /// From now on a request reaches the disk no earlier than a reap, as late as a kernel may take it. Requests in a
  /// queue that breaks stay with the kernel.
  void hold_requests();
  bool requests_are_held() const;
  /// The memory of such requests afterwards.
  struct Late {
    std::size_t reads = 0;  ///< their memory now holds kLateByte
    std::size_t writes = 0;
    std::size_t changed = 0;  ///< writes whose memory differs from the submitted bytes: it was reused
  };
  static constexpr std::byte kLateByte{0xee};
  /// The kernel executes the requests of broken queues. Call it after the submitting Ios were destroyed or have failed.
  Late finish_late();
  /// Called by the Io. `before`: hash of a write's bytes as they were submitted.
  void leave_to_kernel(const Request& request, const Hash128& before);
  std::uint64_t operation_count() const;
  /// An operation that was counted; `offset` in its file, for reads and writes.
  struct Operation {
    std::string name;
    std::string object;
    std::uint64_t offset = 0;
  };
  /// All that were carried out since the last call of `clear`, failed ones too. Only where they are kept.
  void keep_operations();
  std::vector<Operation> operations() const;
  /// The first operation that was made to fail or called an act ("rename /d/m"), or "".
  std::string first_failed() const;

  enum class Outcome : std::uint8_t { pass, fail, carry_out_and_fail, tear };
  struct Verdict {
    Outcome outcome = Outcome::pass;
    Error error{};
  };
  /// Counts an operation and decides on it. Called by the Io.
  Verdict next(const char* operation, const std::string& object, std::uint64_t offset = 0);

 private:
  void arm(std::uint64_t n, std::uint64_t count, Outcome effect, Errc code, std::function<void()> act);

  mutable std::mutex mutex_;
  // All below guarded by mutex_.
  std::uint64_t count_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t failures_ = 0;  // from first_ on
  Outcome effect_ = Outcome::fail;
  Errc code_ = Errc::io;
  std::function<void()> act_;  // at the first of them, instead of failing
  std::set<std::string> counted_;
  std::string first_failed_;
  bool queues_broken_ = false;
  bool requests_held_ = false;
  std::vector<std::pair<Request, Hash128>> late_;
  bool operations_kept_ = false;
  std::vector<Operation> operations_;
  std::chrono::milliseconds slowed_{0};
};

/// Any Io, with failures as planned. Counted are all calls that reach the system, a submitted request as one; a
/// request that fails does so in its completion. A close that fails has closed, as on Linux.
std::unique_ptr<Io> make_fault_io(std::unique_ptr<Io> inner, std::shared_ptr<FaultPlan> plan);

}  // namespace ckpt
