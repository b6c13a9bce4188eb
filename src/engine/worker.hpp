#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/buffer_pool.hpp"
#include "engine/fetch.hpp"
#include "engine/io.hpp"
#include "engine/plan.hpp"
#include "format/hash.hpp"

namespace ckpt {

/// What the workers of one run share. Members are thread-safe or constant.
struct RunShared {
  const Plan& plan;
  BufferPool& pool;
  std::string source_root;
  std::string target_root;  ///< "" = hash only
  bool check_crc = true;
  std::size_t buffers_per_worker = 2;
  std::function<Result<LeafJob>(std::uint64_t)> make_job;   ///< serialises Plan::leaf
  std::function<std::optional<std::uint64_t>()> next_leaf;  ///< nothing left: empty
  std::function<void(std::uint64_t leaf, const Hash128&)> finished;
  std::atomic<bool>& stop;  ///< ends every worker at its next step
  std::atomic<std::uint64_t>& done_bytes;
};

struct WorkerReport {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t crc_checked = 0;
  CastCounts casts{};
  bool direct = true;
};

/// One thread's share of a run: an event loop over its own Io. Leaves are begun in target order; each holds one
/// buffer for its bytes and, one after another, buffers for what is read; a leaf is hashed and written as soon as its
/// last read is placed. Every request owns its buffer until it is reaped, also after a failure.
class Worker {
 public:
  Worker(RunShared& shared, Io& io) : shared_(shared), io_(io) {}

  /// Runs until no leaf is left, then syncs and closes the target files it wrote.
  Result<WorkerReport> run();

 private:
  struct Job;
  struct Reading;
  struct OpenFile {
    FileHandle handle{};
    std::size_t in_flight = 0;
    std::uint64_t last_use = 0;
  };

  Result<> loop();
  Result<bool> begin_jobs();
  Result<bool> begin_leaf(Job& job);
  std::optional<BufferPool::Lease> take_buffer();
  Result<bool> begin_reads();
  Result<> begin_reading(Job& job, BufferPool::Lease buffer);
  Result<bool> submit_some();
  Result<> reap(bool wait);
  Result<> check_length(const Segment& segment, std::size_t bytes) const;
  void drain();
  Result<> complete_read(Reading& reading);
  Result<> complete_leaf(Job& job);
  Result<> queue_write(Job& job);
  Result<> complete_write(Job& job);
  Result<FileHandle> source_file(std::uint32_t file, bool sparse);
  Result<FileHandle> target_file(std::uint32_t file);
  Result<> sync_targets();
  std::string source_path(std::uint32_t file) const;
  Error locate_failure(Error error, std::uint32_t file, std::uint32_t tensor) const;

  RunShared& shared_;
  Io& io_;
  WorkerReport report_;
  std::list<Job> jobs_;
  std::list<Reading> readings_;
  std::deque<Request> queue_;
  std::size_t in_flight_ = 0;
  bool exhausted_ = false;
  std::uint64_t clock_ = 0;
  std::vector<OpenFile> sources_;  // two a source file: dense (direct) and sparse (buffered)
  std::size_t open_sources_ = 0;
  std::vector<FileHandle> targets_;
};

}  // namespace ckpt
