#include "api/convert/pool.hpp"

#include <fmt/format.h>

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
constexpr std::uint64_t kCopiesOfTensor = 660;  // of a small one, in a leaf of many
constexpr std::uint64_t kPoolPerWorker = std::uint64_t{100} << 20;

Error too_little(std::uint64_t bound, std::uint64_t least) {
  const std::uint64_t mebibytes = (least + (1u << 20) - 1) >> 20;
  return {.code = Errc::memory,
          .message = fmt::format("does not fit in --memory {}M; the minimum is {}M", bound >> 20, mebibytes),
          .hint = fmt::format("--memory {}M", mebibytes)};
}

}  // namespace

Result<> check_layout_memory(const Session& session, std::uint64_t tensors, std::uint64_t tensor_memory) {
  const std::uint64_t least = resident_bytes() + tensors * tensor_memory + smallest_pool_bytes(1) + kRunMargin;
  if (least <= session.memory_bytes) return {};
  return fail(too_little(session.memory_bytes, least + tensors * kCopiesOfTensor));
}

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
    return fail(too_little(bound, std::max(used + smallest + kResidentNoise, 2 * smallest)));
  }
  options.pool_bytes = std::min(room - options.workers * decoding, options.workers * kPoolPerWorker);
  return options;
}

}  // namespace ckpt
