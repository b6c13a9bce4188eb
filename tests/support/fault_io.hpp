#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/io.hpp"

namespace ckpt {

/// Counts the operations of all Ios that share it and says which of them fail. Thread-safe.
class FaultPlan {
 public:
  /// Operation number `n`, counted from 0, and `count - 1` after it fail; `carried_out`: they take effect and only
  /// their answers are lost, as with a network file system.
  void fail_once(std::uint64_t n, Errc code, bool carried_out = false, std::uint64_t count = 1);
  /// Operation `n` and all after it fail, without effect.
  void fail_from(std::uint64_t n, Errc code);
  void clear();
  std::uint64_t operation_count() const;
  /// The first operation that was made to fail ("rename /d/m"), or "".
  std::string first_failed() const;

  enum class Outcome : std::uint8_t { pass, fail, carry_out_and_fail };
  struct Verdict {
    Outcome outcome = Outcome::pass;
    Error error{};
  };
  /// Counts an operation and decides on it. Called by the Io.
  Verdict next(const char* operation, const std::string& object);

 private:
  mutable std::mutex mutex_;
  // All below guarded by mutex_.
  std::uint64_t count_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t failures_ = 0;  // from first_ on
  bool carried_out_ = false;
  Errc code_ = Errc::io;
  std::string first_failed_;
};

/// Any Io, with failures as planned. Counted are all calls that reach the system, a submitted request as one; a
/// request that fails does so in its completion. A close that fails has closed, as on Linux.
std::unique_ptr<Io> make_fault_io(std::unique_ptr<Io> inner, std::shared_ptr<FaultPlan> plan);

}  // namespace ckpt
