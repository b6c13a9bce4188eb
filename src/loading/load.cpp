#include "loading/load.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "engine/comm/comm.hpp"
#include "engine/run/fetch.hpp"
#include "engine/run/run.hpp"
#include "engine/run/stream_copy.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kStreamedBytes = 64 * 1024;  // less than that may be used while the cache has it

Error bad_leaf(const Map& map, const LoadPlan& plan, const LoadPlan::Unit& unit, const std::string& root) {
  const std::string path = join_path(root, map.files[unit.file].path);
  const std::uint32_t tensor = plan.scatters()[unit.first_scatter].copy.tensor;
  return {.code = Errc::checksum,
          .message = path + ": the bytes differ from the saved ones",
          .file = path,
          .offset = unit.leaf * kLeafBytes,
          .tensor = tensor == kNoTensor ? std::string() : map.tensors[tensor].name};
}

/// Copies a unit's bytes to their destinations.
void scatter(const LoadPlan& plan, const LoadPlan::Unit& unit, std::span<const PartRead> requests,
             const std::byte* bytes) {
  CastCounts counts;
  std::size_t extent = 0;  // both are sorted by their place in the file
  for (std::size_t i = unit.first_scatter; i < unit.end_scatter; ++i) {
    const LoadPlan::Scatter& wanted = plan.scatters()[i];
    while (wanted.copy.source_offset >= unit.extents[extent].end) bytes += unit.extents[extent++].size();
    const std::uint64_t begin = unit.extents[extent].begin;
    std::byte* out = requests[wanted.request].out;
    if (is_plain_run(wanted.copy) && target_volume(wanted.copy) >= kStreamedBytes) {
      stream_copy(out + wanted.copy.target_offset, bytes + (wanted.copy.source_offset - begin),
                  static_cast<std::size_t>(target_volume(wanted.copy)));
    } else {
      carry_out(wanted.copy, bytes, begin, out, counts);
    }
  }
}

}  // namespace

Result<ReadReport> load_into(const Map& map, std::span<const PartRead> requests, const LeavesOf& leaves, Io& io,
                             const LoadOptions& options) {
  CKPT_TRY(LoadPlan plan, LoadPlan::make(map, requests, leaves, {.whole_leaves = options.whole_leaves}));
  return load_into(map, requests, std::move(plan), leaves, io, options);
}

Result<ReadReport> load_into(const Map& map, std::span<const PartRead> requests, LoadPlan plan, const LeavesOf& leaves,
                             Io& io, const LoadOptions& options) {
  ReadReport report{.needed_bytes = plan.needed_bytes()};
  if (plan.units().empty()) return report;
  std::atomic<std::uint64_t> verified{0};
  std::atomic<std::uint64_t> unverified{0};
  CKPT_TRY(const Plan reads, Plan::make(map, plan.take_targets()));
  const auto comm = Comm::solo();
  const RunOptions run_options{
      .source_root = options.root,
      .workers = options.workers,
      .pool = options.pool,
      .deliver = [&](std::uint64_t leaf, const Hash128& hash, std::span<const std::byte> bytes) -> Result<> {
        const LoadPlan::Unit& unit = plan.units()[static_cast<std::size_t>(leaf)];
        if (unit.whole) {
          if (hash != leaves(unit.file)[static_cast<std::size_t>(unit.leaf)]) {
            return fail(bad_leaf(map, plan, unit, options.root));
          }
          verified.fetch_add(1, std::memory_order_relaxed);
        } else {
          unverified.fetch_add(bytes.size(), std::memory_order_relaxed);
        }
        scatter(plan, unit, requests, bytes.data());
        return {};
      },
      .progress =
          [&](std::uint64_t, std::uint64_t) {
            if (options.pulse) options.pulse();
          },
      .stop = options.stop,
  };
  CKPT_TRY(const RunReport done, run(reads, io, *comm, run_options));
  report.read_bytes = done.read_bytes;
  report.verified_leaves = verified.load();
  report.unverified_bytes = unverified.load();
  return report;
}

}  // namespace ckpt
