#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/comm.h"
#include "format/result.hpp"

namespace ckpt {

using Deadline = std::chrono::steady_clock::time_point;

/// The ranks of one operation. Used by one thread. A rank that failed still joins the collective its peers wait in.
/// Once a collective has failed no other is started: every later call is peer_failed at once.
class Comm {
 public:
  /// One rank, no library.
  static std::unique_ptr<Comm> solo();
  /// The ranks of load_mpi_table. mpi_launch when it cannot be loaded or disagrees with `expected_ranks` promised by
  /// the environment.
  static Result<std::unique_ptr<Comm>> mpi(int expected_ranks);

  using Clock = std::function<Deadline()>;
  /// `clock`: deadlines are compared with it; the steady clock if empty.
  explicit Comm(ckpt_comm_table table, Clock clock = {});
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const;
  int ranks() const;
  int local_ranks() const;
  bool is_root() const { return rank() == 0; }
  Deadline now() const;
  /// A collective has failed; no more are started.
  bool is_lost() const { return lost_; }
  /// The same by a decision that every rank takes.
  void give_up() { lost_ = true; }
  std::string library() const;
  /// Whether ranks can send each other messages (message.hpp): tables of older trainers cannot.
  bool has_messages() const;

  /// A collective in flight. Works on its own copy of the bytes, which outlives it if abandoned. The caller's bytes are
  /// written only by the `test` that returns true, and must live until then.
  class Pending {
   public:
    Pending() = default;
    Pending(Pending&&) noexcept;
    Pending& operator=(Pending&&) noexcept;
    ~Pending();  ///< abandons a request that is not done
    bool active() const { return request_ != nullptr; }
    Result<bool> test();  ///< true once done; peer_failed on failure

   private:
    friend class Comm;
    void abandon();
    Comm* comm_ = nullptr;
    void* request_ = nullptr;
    std::unique_ptr<std::vector<std::uint64_t>> words_;
    std::span<std::uint64_t> out_;
  };
  Result<Pending> start_max(std::span<std::uint64_t> values);

  /// These wait by testing until the deadline; peer_failed when it passes.
  Result<> max(std::span<std::uint64_t> values, Deadline deadline);
  /// Rank 0 receives every rank's bytes, in rank order; others an empty vector. Sizes may differ; a message is at
  /// most 1 GiB, else `internal` on every rank.
  Result<std::vector<std::string>> gather(std::string_view mine, Deadline deadline);
  Result<> broadcast(std::string& bytes, Deadline deadline);

 private:
  friend class Message;
  template <class Bytes, class Start>
  Result<> carry(std::unique_ptr<Bytes>& bytes, Deadline deadline, const char* operation, Start start);
  Error lost(const char* operation, const std::string& reason);
  Result<> usable(const char* operation) const;

  ckpt_comm_table table_;
  Clock clock_;
  bool lost_ = false;
};

/// Loads `libckpt_mpi.so` from where ckpt is installed (engine/process/installed.hpp), initialises MPI if the program
/// has not, and returns its table over all ranks. Collective.
/// errors  mpi_launch
Result<ckpt_comm_table> load_mpi_table();

/// Collective: ends a phase with one verdict. Every rank calls it, those that failed too. The failed rank gets its
/// own error back, the others peer_failed with the failed rank's message, file, tensor and hint; all of them with the
/// same `verdict`: the code of the lowest rank that failed.
Result<> agree(Comm& comm, Deadline deadline, Result<> mine);

}  // namespace ckpt
