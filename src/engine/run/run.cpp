#include "engine/run/run.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/comm/heartbeat.hpp"
#include "engine/io/exceptions_to_result.hpp"
#include "engine/io/open_files.hpp"
#include "engine/run/fetch.hpp"
#include "engine/run/source_files.hpp"
#include "engine/run/worker.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

// Buffers of a worker: enough to keep a disk's queue full with whole leaves, and to keep shared data until all leaves
// have used it. Leaves that are gathered from pieces need more, for each piece that is read takes one; but fresh memory
// costs as much as a fast disk's transfer, so a run takes more only where it is long.
constexpr std::uint64_t kBuffersPerWorker = 6;
constexpr std::uint64_t kSharingBuffersPerWorker = 8;
constexpr std::uint64_t kLeavesPerBuffer = 8;
constexpr std::uint64_t kMostBuffers = 40;  // of all workers of all ranks, unless they are many
// Leaves that a worker takes at a time. Leaves that share reads must be processed by one worker, so fewer turns are
// taken.
constexpr Extent kLeavesTaken{1, 48};
constexpr Extent kSharingLeavesTaken{24, 128};
// Descriptors: a worker's ring, its record and one file; and a few for the process.
constexpr std::size_t kFilesPerWorker = 3;
constexpr std::size_t kSpareFiles = 8;
constexpr auto kPulse = std::chrono::milliseconds(20);
constexpr auto kLastPulse = std::chrono::milliseconds(1);  // when only the others' answers are missing
// Ranks that get no message from each other for this long give up.
constexpr std::chrono::milliseconds kPeerPatience = std::chrono::seconds(30);

/// The state that workers and the coordinating thread share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t next = 0;  // guarded by mutex
  std::uint64_t end = 0;
  unsigned running = 0;          // guarded by mutex
  std::optional<Error> failure;  // guarded by mutex; the first real one
  WorkerReport report;           // guarded by mutex
};

/// A worker's thread. Its Io is made here: a ring belongs to the thread that made it.
void work(RunShared& run_shared, Shared& shared, const Io& io) {
  auto outcome = exceptions_to_result([&]() -> Result<WorkerReport> {
    CKPT_TRY(const auto own, io.new_instance());
    auto done = work_leaves(run_shared, *own);
    if (done || !may_be_change(done.error().code)) return done;
    auto same = check_unchanged(*own, run_shared.plan.source(), run_shared.source_root);
    if (!same && same.error().code == Errc::changed) return fail(std::move(same).error());
    return done;
  });
  const std::lock_guard lock(shared.mutex);
  if (!outcome) {
    const bool only_stopped = outcome.error().code == Errc::interrupted;
    if (!shared.failure || (shared.failure->code == Errc::interrupted && !only_stopped)) {
      shared.failure = std::move(outcome).error();
    }
    run_shared.stop.store(true);
  } else {
    shared.report.read_bytes += outcome->read_bytes;
    shared.report.written_bytes += outcome->written_bytes;
    shared.report.crc_checked += outcome->crc_checked;
    shared.report.compared_bytes += outcome->compared_bytes;
    shared.report.casts += outcome->casts;
    shared.report.direct = shared.report.direct && outcome->direct;
  }
  --shared.running;
  shared.changed.notify_all();
}

Result<std::vector<Hash128>> gather_leaves(Comm& comm, const std::vector<Hash128>& mine) {
  if (comm.ranks() == 1) return mine;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Hash128));
  CKPT_TRY(const std::vector<std::string> all, comm.gather(bytes, std::chrono::steady_clock::now() + kPeerPatience));
  if (!comm.is_root()) return mine;
  std::vector<Hash128> leaves;
  for (const std::string& part : all) {
    for (std::size_t at = 0; at + sizeof(Hash128) <= part.size(); at += sizeof(Hash128)) {
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Hash128), leaves.emplace_back().bytes.begin());
    }
  }
  return leaves;
}

/// Collective: checksums of entries that several ranks read are joined on rank 0, and one verdict is agreed upon.
Result<> join_crcs(Comm& comm, const Plan& plan, const RunOptions& options, CrcJoiner& crcs, RunReport& report) {
  if (comm.ranks() == 1 || !options.check_crc || options.staging != nullptr) return {};
  const auto deadline = [] { return std::chrono::steady_clock::now() + kPeerPatience; };
  CKPT_TRY(const std::vector<std::string> all,
           comm.gather(comm.is_root() ? std::string() : crcs.unfinished(), deadline()));
  Result<> outcome;
  if (comm.is_root()) {
    for (const std::string& unfinished : all) {
      crcs.absorb(unfinished, [&](const CrcJoiner::Entry& entry, const CrcJoiner::Verdict& verdict) {
        ++report.crc_checked;
        if (verdict.right || !outcome) return;
        const Discrepancy wrong{.file = entry.file,
                                .offset = entry.crc.begin,
                                .tensor = entry.tensor,
                                .stored = entry.crc.value,
                                .computed = verdict.computed};
        outcome = options.found ? options.found(wrong) : fail(as_error(wrong, plan.source(), options.source_root));
      });
    }
  }
  report.crc_unread = comm.is_root() ? crcs.unread() : 0;
  return agree(comm, deadline(), std::move(outcome));
}

/// Collective: rank 0 writes the late fields that no worker could fill in or, where nothing is written, compares them.
Result<> finish_late(Comm& comm, Io& io, const RunOptions& options, LateFields& late, RunReport& report) {
  if (late.empty()) return {};
  const auto deadline = [] { return std::chrono::steady_clock::now() + kPeerPatience; };
  if (comm.ranks() > 1) {
    CKPT_TRY(const std::vector<std::string> all,
             comm.gather(comm.is_root() ? std::string() : late.packed_records(), deadline()));
    if (comm.is_root()) {
      for (const std::string& packed_records : all) late.absorb(packed_records);
    }
  }
  Result<> outcome;
  if (comm.is_root() && !options.target_root.empty()) {
    outcome = late.write_rest(io, options.target_root);
  } else if (comm.is_root()) {
    report.late_wrong = late.wrong();
  }
  return agree(comm, deadline(), std::move(outcome));
}

}  // namespace

std::uint64_t copies_bytes(const Plan& plan, unsigned workers) {
  constexpr std::uint64_t kGrouping = 3;  // a leaf's copies while they are grouped: old, new, and room to grow
  constexpr std::uint64_t kHeldBytes = sizeof(Fetch::Use) + 2 * sizeof(Copy::Dim);
  const Plan::Totals& totals = plan.totals();
  const std::uint64_t held = std::min(totals.placements, kCopiesPerWorker + kGrouping * totals.most_placements);
  return std::min<std::uint64_t>(workers * held, kGrouping * totals.placements) * kHeldBytes;
}

std::uint64_t smallest_pool_bytes(unsigned workers) {
  return std::uint64_t{2} * workers * kRunBufferBytes;
}

Result<RunReport> run(const Plan& plan, Io& io, Comm& comm, const RunOptions& options) {
  const auto ranks = static_cast<std::uint64_t>(comm.ranks());
  const auto rank = static_cast<std::uint64_t>(comm.rank());
  const std::uint64_t positions = plan.positions();
  const std::uint64_t first = positions * rank / ranks;
  const std::uint64_t end = positions * (rank + 1) / ranks;

  const std::size_t room = open_file_room();
  const std::size_t files = room - std::min(room, kSpareFiles);
  const std::uint64_t most_workers = std::min<std::uint64_t>(end - first, files / (2 * kFilesPerWorker));
  const unsigned workers =
      static_cast<unsigned>(std::clamp<std::uint64_t>(options.workers, 1, std::max<std::uint64_t>(1, most_workers)));
  const std::uint64_t of_siblings = 2 * std::min<std::uint64_t>(plan.siblings(), kMostSiblings) + 2;
  const std::uint64_t usual =
      workers * (plan.shares_reads() ? std::max(kSharingBuffersPerWorker, of_siblings) : kBuffersPerWorker);
  const std::uint64_t most =
      std::max(usual, std::min((end - first) / kLeavesPerBuffer, kMostBuffers / ranks)) / workers;
  const std::uint64_t buffers =
      options.pool != nullptr ? options.pool->buffer_count() : options.pool_bytes / kRunBufferBytes;
  const auto per_worker = static_cast<std::size_t>(std::min({buffers / workers, most, 2 * (end - first + 1)}));
  if (per_worker < 2) {
    return fail(Errc::memory,
                "the buffer pool needs at least " + std::to_string(smallest_pool_bytes(workers)) + " bytes");
  }
  std::unique_ptr<BufferPool> own_pool;
  if (options.pool == nullptr) {
    CKPT_TRY(own_pool, BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = per_worker * workers}));
  }
  BufferPool& pool = options.pool != nullptr ? *options.pool : *own_pool;

  RunReport report;
  report.leaves.resize(end - first);
  Shared shared;
  shared.next = first;
  shared.end = end;
  shared.running = workers;
  std::mutex plan_mutex;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done_bytes{0};
  OpenFileBudget open_files(files - std::min(files, workers * kFilesPerWorker));
  CrcJoiner own_crcs;
  CrcJoiner& crcs = options.crcs != nullptr ? *options.crcs : own_crcs;
  LateFields own_late(options.late != nullptr ? std::vector<TargetFile>() : plan.targets());
  LateFields& late = options.late != nullptr ? *options.late : own_late;
  RunShared run_shared{
      .plan = plan,
      .pool = pool,
      .source_root = options.source_root,
      .target_root = options.target_root,
      .crcs = options.check_crc ? &crcs : nullptr,
      .late = late.empty() ? nullptr : &late,
      .leaves = options.leaves,
      .found = options.found,
      .buffers_per_worker = per_worker,
      .open_files = open_files,
      .make_job =
          [&](std::uint64_t position) {
            const std::lock_guard lock(plan_mutex);  // chunk indices are used by one thread at a time
            return plan.leaf(plan.leaf_at(position));
          },
      .next_positions =
          [&] {
            const std::lock_guard lock(shared.mutex);
            // Less and less, so that all workers end together.
            const std::uint64_t share = (shared.end - shared.next) / (2 * std::uint64_t{workers});
            const std::uint64_t begin = shared.next;
            const Extent taken = plan.shares_reads() ? kSharingLeavesTaken : kLeavesTaken;
            shared.next = std::min(shared.end, begin + std::clamp(share, taken.begin, taken.end));
            while (shared.next < shared.end && plan.together(shared.next) == 0) ++shared.next;
            return Extent{begin, shared.next};
          },
      .finished = [&](std::uint64_t position, const Hash128& hash, std::span<const std::byte> bytes) -> Result<> {
        report.leaves[position - first] = hash;
        return options.deliver ? options.deliver(plan.leaf_at(position), hash, bytes) : Result<>();
      },
      .record = options.record,
      .record_every = options.record_every,
      .reader = options.reader,
      .staging = options.staging,
      .stop = stop,
      .done_bytes = done_bytes,
  };

  Result<> peers;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < workers; ++i) {
      try {
        threads.emplace_back([&] { work(run_shared, shared, io); });
      } catch (const std::system_error& error) {
        // The started ones do everything.
        const std::lock_guard lock(shared.mutex);
        shared.running -= workers - i;
        if (i == 0) shared.failure = refused_by_system(error);
        break;
      }
    }
    Heartbeat heartbeat(comm, kPeerPatience);
    bool all_done = false;
    bool done = false;  // here; other ranks may still work
    while (!all_done) {
      int code = 0;
      {
        std::unique_lock lock(shared.mutex);
        shared.changed.wait_for(lock, done ? kLastPulse : kPulse, [&] { return !done && shared.running == 0; });
        done = shared.running == 0;
        // A worker stopped because of another rank's failure adds nothing to the reason.
        const bool stopped_for_peers =
            heartbeat.peer_failed() && shared.failure && shared.failure->code == Errc::interrupted;
        if (shared.failure && !stopped_for_peers) code = static_cast<int>(shared.failure->code);
      }
      if (options.stop != nullptr && options.stop->load()) stop.store(true);
      io.beat();
      if (options.progress)
        options.progress(plan.left_out_bytes() + done_bytes.load() * ranks, plan.totals().target_bytes);
      if (peers) {
        auto beat = heartbeat.beat(code, done);
        if (!beat) {
          peers = fail(std::move(beat).error());
        } else {
          all_done = *beat;
          if (heartbeat.peer_failed()) stop.store(true);
        }
      }
      if (!peers) {
        stop.store(true);
        all_done = done;
      }
    }
    if (peers && heartbeat.peer_failed()) {
      peers = fail({.code = Errc::peer_failed, .message = "another rank failed", .verdict = heartbeat.verdict()});
    }
  }
  if (options.staging != nullptr) options.staging->close();
  // Reports a rank that was stopped only because another one failed.
  if (shared.failure && !(shared.failure->code == Errc::interrupted && !peers)) return fail(*shared.failure);
  CKPT_CHECK(peers);

  report.io_name = io.name();
  if (own_pool) {
    report.page_kind = own_pool->page_kind();
    report.hugetlb_bytes = own_pool->hugetlb_bytes();
  }
  report.read_bytes = shared.report.read_bytes;
  report.written_bytes = shared.report.written_bytes;
  report.crc_checked = shared.report.crc_checked;
  report.crc_unread = crcs.unread();
  report.compared_bytes = shared.report.compared_bytes;
  report.casts = shared.report.casts;
  report.direct = shared.report.direct;
  CKPT_CHECK(join_crcs(comm, plan, options, crcs, report));
  CKPT_CHECK(finish_late(comm, io, options, late, report));
  CKPT_TRY(const std::vector<Hash128> gathered, gather_leaves(comm, report.leaves));
  if (comm.is_root()) {
    report.leaves.assign(static_cast<std::size_t>(plan.totals().leaves), Hash128{});
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      report.leaves[static_cast<std::size_t>(plan.leaf_at(i))] = gathered[i];
    }
  }
  return report;
}

}  // namespace ckpt
