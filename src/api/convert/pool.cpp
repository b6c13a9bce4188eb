#include "api/convert/pool.hpp"

#include <algorithm>
#include <string>

#include "engine/run/decompress.hpp"
#include "engine/run/leaf_record.hpp"

namespace ckpt {
namespace {

// Memory of a run besides its pool: thread stacks, rings.
constexpr std::uint64_t kResidentNoise = std::uint64_t{2} << 20;
constexpr std::uint64_t kRunMargin = std::uint64_t{12} << 20;
// Two workers of this many buffers keep the disks we measured busy in both directions.
constexpr std::uint64_t kPoolPerWorker = std::uint64_t{100} << 20;

}  // namespace

Result<RunOptions> run_options(const Session& session, const Plan& plan) {
  RunOptions options;
  options.stop = session.stop;
  // Hash, record and order of each leaf: memory of a resumed conversion.
  const std::uint64_t hashes = plan.totals().leaves * (sizeof(Hash128) + sizeof(RecordedLeaf) + sizeof(std::uint64_t));
  const std::uint64_t used = resident_bytes() + hashes + copies_bytes(plan, session.threads) + kRunMargin;
  const std::uint64_t bound = session.memory_bytes;
  const std::uint64_t room = bound > used ? std::min(bound - used, bound / 2) : 0;
  const std::uint64_t decoding = plan.source().compressed ? kDecodeBytes : 0;  // of a worker
  options.workers = std::max(1u, session.threads);
  while (options.workers > 1 && smallest_pool_bytes(options.workers) * 2 + options.workers * decoding > room) {
    --options.workers;
  }
  if (smallest_pool_bytes(1) + decoding > room) {
    const std::uint64_t smallest = smallest_pool_bytes(1) + decoding;
    // The next run may have a little more resident: the kernel maps pages around those that are touched.
    const std::uint64_t least = std::max(used + smallest + kResidentNoise, 2 * smallest);
    const std::uint64_t mebibytes = (least + (1u << 20) - 1) >> 20;
    return fail({.code = Errc::memory,
                 .message = "does not fit in --memory " + std::to_string(bound >> 20) + "M; the minimum is " +
                            std::to_string(mebibytes) + "M",
                 .hint = "--memory " + std::to_string(mebibytes) + "M"});
  }
  options.pool_bytes = std::min(room - options.workers * decoding, options.workers * kPoolPerWorker);
  return options;
}

}  // namespace ckpt
