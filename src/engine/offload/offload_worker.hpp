#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/offload/offload_memory.hpp"
#include "format/result.hpp"

namespace ckpt::offload {

using Lock = std::unique_lock<std::mutex>;

/// One part to be read or written.
struct Task {
  Tensor* tensor = nullptr;
  std::size_t part = 0;
  bool write = false;
};

/// State shared by the caller's thread and the store's thread, guarded by `mutex`. Only the store's thread uses
/// Tensor::file and destroys a Tensor.
struct Shared {
  explicit Shared(BufferPool& pool) : memory(pool) {}

  std::mutex mutex;
  std::condition_variable changed;  ///< for the caller: a task ended
  std::condition_variable work;     ///< for the store's thread: there is something to do
  Memory memory;
  std::deque<Task> urgent;  ///< reads that a get waits for
  std::deque<Task> queue;   ///< writes, and reads ahead
  struct Wanted {
    Tensor* tensor = nullptr;
    std::size_t next = 0;  ///< the first part not checked yet
  };
  std::deque<Wanted> wanted;                     ///< prefetches that lack some of their buffers
  std::vector<std::unique_ptr<Tensor>> removed;  ///< whose files are to be removed; no transfer of theirs is in flight
  std::vector<std::unique_ptr<Tensor>> rest;     ///< with `stopping`: all others, whose files go last
  std::size_t pending = 0;                       ///< tasks queued or in progress
  bool demand = false;                           ///< the caller waits for a buffer: prefetches take none
  bool stopping = false;
  std::optional<Error> broken;      ///< the store's thread has ended with this
  std::optional<Error> unreported;  ///< the first failure since the last reported one
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t write_failures = 0;
  bool direct = true;

  void begin_read(Tensor& tensor, std::size_t part, BufferPool::Buffer buffer, bool is_urgent);
  void begin_write(Tensor& tensor, std::size_t part);
  /// Begins the reads of prefetches for which there are buffers.
  void begin_wanted();
  /// Retries the failed writes of a tensor. Returns how many parts.
  std::size_t retry(Tensor& tensor);
};

/// The work of the store's thread, over its own Io.
class Worker {
 public:
  struct Options {
    std::size_t block_bytes = 0;
    std::size_t queue_depth = 0;
  };
  Worker(Shared& shared, Io& io, Options options) : shared_(shared), io_(io), options_(options) {}

  /// Carries out tasks until `stopping`, then removes the files of all tensors. An error: the Io is of no more use; it
  /// must be destroyed before `abandon` is called, because requests may still be in flight.
  Result<> run();
  /// Ends every task that is queued or in progress as failed with `error`, and all calls from now on.
  void abandon(const Error& error);

 private:
  struct Active {
    Task task{};
    std::byte* data = nullptr;
    std::uint64_t offset = 0;      // in the file
    std::size_t bytes = 0;         // padded to kAlignment
    std::uint64_t file_bytes = 0;  // of the whole tensor, padded
    std::size_t submitted = 0;
    std::size_t in_flight = 0;  // blocks
    std::optional<Error> error{};
  };
  struct Block {
    Active* active = nullptr;
    std::size_t bytes = 0;
  };

  bool wait_for_work();
  void remove_files(std::vector<std::unique_ptr<Tensor>> Shared::*tensors);
  void submit_blocks();
  Active* begin_next();
  void submit_block(Active& active);
  Result<> ready_file(const Active& active);
  Result<> open_file(Tensor& tensor);
  void close_oldest();
  Result<> reap();
  void finish(Active& active);
  void end_task(const Task& task, std::optional<Error> error);  // under the lock

  Shared& shared_;
  Io& io_;
  Options options_;
  std::list<Active> active_;   // blocks point to them
  Active* current_ = nullptr;  // the one whose blocks are being submitted
  std::vector<Block> blocks_;  // in flight; the index is the tag
  std::size_t in_flight_ = 0;
  std::vector<Tensor*> open_;  // tensors whose files are open
  std::uint64_t clock_ = 0;
};

/// A call on a name that the store does not hold.
Error no_such_tensor(const char* call, const std::string& name);

/// The name of a tensor's file: unique by `serial`, readable, and safe whatever the tensor's name.
std::string swap_file_name(std::uint64_t serial, std::string_view name);
/// Whether a file of this name is ours to remove.
bool is_swap_file_name(std::string_view name);

}  // namespace ckpt::offload
