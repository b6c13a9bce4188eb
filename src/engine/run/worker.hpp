#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/io/io.hpp"
#include "engine/io/open_files.hpp"
#include "engine/run/buffer_pool.hpp"
#include "engine/run/checks.hpp"
#include "engine/run/crc_joiner.hpp"
#include "engine/run/late_fields.hpp"
#include "engine/run/leaf_comparer.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/staging.hpp"
#include "format/hash.hpp"
#include "format/model/box.hpp"
#include "format/model/cast.hpp"

namespace ckpt {

/// State shared by the workers of one run. Members are thread-safe or constant.
struct RunShared {
  const Plan& plan;
  BufferPool& pool;
  std::string source_root;
  std::string target_root;                              ///< "" = hash only
  CrcJoiner* crcs = nullptr;                            ///< null: checksums of the source's format are not compared
  LateFields* late = nullptr;                           ///< null: no target file has late fields
  LeafComparer* leaves = nullptr;                       ///< null: stored leaf hashes are not compared
  std::function<Result<>(const Discrepancy&)> found{};  ///< empty: the first finding ends the run
  std::size_t buffers_per_worker = 2;
  OpenFileBudget& open_files;  ///< in addition to the one file that each worker may always have open
  /// Serialises Plan::leaf; leaves are numbered by their position in the plan's order.
  std::function<Result<LeafJob>(std::uint64_t position)> make_job;
  std::function<Extent()> next_positions;  ///< a few that follow each other; empty: nothing is left
  /// A leaf's bytes are complete and hashed. Its failure ends the run.
  std::function<Result<>(std::uint64_t position, const Hash128&, std::span<const std::byte> bytes)> finished;
  std::string record{};  ///< of finished leaves; "" = none
  std::chrono::milliseconds record_every{0};
  std::uint32_t reader = 0;
  Staging* staging = nullptr;  ///< leaves come filled from there; make_job and next_positions are not used
  std::atomic<bool>& stop;     ///< ends every worker at its next step
  std::atomic<std::uint64_t>& done_bytes;
};

struct WorkerReport {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t crc_checked = 0;
  std::uint64_t compared_bytes = 0;
  CastCounts casts{};
  bool direct = true;
};

/// One thread's share of a run, over its own Io: takes leaves until none is left, then syncs and closes the target
/// files it wrote. After a failure every request has been reaped before this returns.
Result<WorkerReport> work_leaves(RunShared& shared, Io& io);

}  // namespace ckpt
