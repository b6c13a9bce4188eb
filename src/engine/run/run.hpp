#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "engine/run/checks.hpp"
#include "engine/run/crc_joiner.hpp"
#include "engine/run/late_fields.hpp"
#include "engine/run/leaf_comparer.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/staging.hpp"
#include "format/hash.hpp"
#include "format/model/cast.hpp"

namespace ckpt {

/// Bytes of a buffer of a run's pool: a leaf, plus the rest of unaligned reads.
constexpr std::size_t kRunBufferBytes = kLeafBytes + 64 * 1024;

struct RunOptions {
  std::string source_root;               ///< directory of the source's files; a file itself where its map path is ""
  std::string target_root;               ///< of the target; "": only hashes (verify, compare)
  unsigned workers = 1;                  ///< threads, each with its own Io
  std::uint64_t pool_bytes = 64u << 20;  ///< for all workers together
  BufferPool* pool = nullptr;            ///< used instead of an own one; its buffers are kRunBufferBytes long
  /// The plan's sources are in memory: its leaves are filled from here. The caller fills while this runs; it is closed
  /// when this returns.
  Staging* staging = nullptr;
  /// Called by the workers, several at once, with every leaf (its number in target order) when its bytes are complete.
  /// A failure ends the run.
  std::function<Result<>(std::uint64_t leaf, const Hash128& hash, std::span<const std::byte> bytes)> deliver{};
  bool check_crc = true;  ///< checksums of the source format over ranges that the run reads completely
  /// Uses this joiner instead of its own, to join the reads of several runs.
  CrcJoiner* crcs = nullptr;
  /// Follows the plan's late fields instead of its own ones: it may know parts of ranges from leaves that the plan
  /// leaves out.
  LateFields* late = nullptr;
  /// Compares the leaf hashes of the source with the bytes read; the first difference ends the run (`checksum`).
  LeafComparer* leaves = nullptr;
  /// Called by the workers, several at once, with each finding: entries with a wrong checksum, and failed checks of the
  /// plan. The run continues if it returns success; without it the first finding ends the run (`checksum`, `corrupt`).
  std::function<Result<>(const Discrepancy&)> found{};
  /// Record of the target's leaves (leaf_record.hpp), by a path that all ranks reach; "" = none is kept.
  std::string record{};
  std::chrono::milliseconds record_every{200};  ///< each worker writes there no more often
  std::uint32_t reader = 0;                     ///< this rank's RecordedLeaf::reader
  /// Called from one thread with leaf bytes finished so far, by all ranks where each is as fast as this one, those that
  /// the plan leaves out among them, and with how much there is.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress{};
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal: ends with `interrupted`
};

/// The result of one rank's run.
struct RunReport {
  /// On rank 0 of all leaves of the plan, by index (none of those that it leaves out); elsewhere of this rank's.
  std::vector<Hash128> leaves{};
  std::uint64_t read_bytes = 0;  ///< from the source, over-reading included
  std::uint64_t written_bytes = 0;
  std::uint64_t crc_checked = 0;  ///< checksums of the source format compared
  std::uint64_t crc_unread = 0;   ///< entries that this rank read only in part
  /// On rank 0, if nothing is written: late fields with wrong values, of those that were read completely together with
  /// their ranges.
  std::vector<LateFields::Wrong> late_wrong{};
  std::uint64_t compared_bytes = 0;  ///< of the plan's checks, counted in the leaves
  CastCounts casts{};
  std::string io_name{};
  /// Of an own pool; a caller with its own pool asks that. The query walks all memory of the process, and a trainer has
  /// much.
  std::string page_kind{};
  std::uint64_t hugetlb_bytes = 0;  ///< of an own pool, in addition to resident memory
  bool direct = false;
};

/// Executes the plan: read, gather, cast, hash, write, in target order, within the pool, divided among the ranks
/// by leaves; late fields are put in as soon as they are known, the rest of them by rank 0 when all leaves are written.
/// Leaves are hashed with their late fields as zero. The target files must exist and be allocated (publish.hpp); each
/// is synced on the descriptor that wrote it before this returns. Collective. After a failure nothing that was written
/// can be relied on.
Result<RunReport> run(const Plan& plan, Io& io, Comm& comm, const RunOptions& options);

/// A worker begins no further leaf while it holds this many copies.
constexpr std::size_t kCopiesPerWorker = 8192;

/// Memory that a run with this many workers takes for copies besides its pool, in bytes: for leaves of many tiny
/// tensors.
std::uint64_t copies_bytes(const Plan& plan, unsigned workers);

/// The smallest pool that can run a plan with this many workers, in bytes.
std::uint64_t smallest_pool_bytes(unsigned workers);

}  // namespace ckpt
