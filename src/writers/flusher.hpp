#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/result.hpp"
#include "writers/background.hpp"
#include "writers/save_job.hpp"

namespace ckpt {

/// Writes this rank's part of saves: copies it to staging memory in the trainer's thread; hashes, writes and syncs it
/// in a separate thread, which never calls Comm.
class Flusher {
 public:
  struct Options {
    unsigned copy_threads = 2;
    unsigned write_threads = 1;
    /// Called in the flusher's thread when a part has been written, well or not.
    std::function<void(const std::shared_ptr<SaveJob>&)> written{};
  };
  /// `io` becomes the thread's. `pool`: staging memory.
  Flusher(std::unique_ptr<Io> io, BufferPool& pool, Options options)
      : options_(std::move(options)), pool_(pool), thread_(std::make_unique<Background>(std::move(io))) {}

  /// Copies the part of a save that is planned. `flush_beside`: it is written at the same time, as staging memory
  /// cannot hold all of it; else after the copy, which hashing would slow down. A failure is the save's.
  void stage(const std::shared_ptr<SaveJob>& save, bool flush_beside);
  /// The same where a rank may wait for its disk, for as long as it takes: it does not count as lost for ranks that
  /// have less to save. Collective.
  /// errors  peer_failed
  Result<> stage_with_others(Comm& comm, std::chrono::milliseconds patience, const std::shared_ptr<SaveJob>& save,
                             bool flush_beside);

  /// Calls `task` when everything staged so far is written: in the flusher's thread, or at once after `finish`.
  void after(std::function<void()> task);
  /// Runs a task in the flusher's thread and waits for it. Not after `finish`.
  Result<> run(const std::function<Result<>(Io&)>& task) { return thread_->run(task); }
  /// Waits until everything is written. Nothing is staged later.
  void finish() { thread_.reset(); }

 private:
  void flush(const std::shared_ptr<SaveJob>& save, Io& io);

  const Options options_;
  BufferPool& pool_;
  std::unique_ptr<Background> thread_;  // last: its tasks use all of the above
};

}  // namespace ckpt
