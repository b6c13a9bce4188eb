#include "api/convert/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/convert/pool.hpp"
#include "api/convert/progress_names.hpp"
#include "format/checked.hpp"

namespace ckpt {

Result<std::vector<std::string>> tensors_at(const Map& map, std::uint32_t file, Extent bytes, std::size_t most) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < map.tensors.size() && names.size() < most; ++i) {
    CKPT_TRY(const std::uint64_t elements, checked_volume(map.tensors[i].shape));
    bool here = false;
    // One that cannot be placed (in a salvage: its writer's index is lost) has no location.
    static_cast<void>(map.index->chunks(i, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
      if (placed.where.file != file) return {};
      const auto& compressed = placed.where.compressed;
      const std::uint64_t begin = compressed ? compressed->stored.begin : placed.where.offset;
      const std::uint64_t end =
          compressed ? compressed->stored.end : begin + placed.chunk.volume() * dtype_bits(placed.where.dtype) / 8;
      here = here || (begin < bytes.end && end > bytes.begin);
      return {};
    }));
    if (here) names.push_back(map.tensors[i].name);
  }
  return names;
}

Written as_written(const Plan& plan) {
  Written out;
  for (const TargetFile& target : plan.targets()) {
    TargetFile file{.path = target.path, .bytes = target.bytes, .late = target.late};
    if (target.bytes > 0) {
      file.placements.push_back({.bytes = target.bytes,
                                 .from = Placement::From::raw,
                                 .raw_file = static_cast<std::uint32_t>(out.map.files.size())});
    }
    out.files.push_back(std::move(file));
    out.map.files.push_back({target.path, target.bytes, 0});
  }
  return out;
}

Result<LeafCheck> check_leaves(Session& session, Comm& comm, const Map& map, const std::string& root,
                               std::vector<TargetFile> files, const std::vector<Hash128>& expected,
                               const std::string& phase) {
  CKPT_TRY(const Plan plan, Plan::make(map, std::move(files)));
  CKPT_TRY(RunOptions options, run_options(session, plan));
  options.source_root = root;
  const ProgressNames progress_names(plan);
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      session.progress({phase, done, total, progress_names.at(done)});
    };
  }
  CKPT_TRY(const RunReport report, run(plan, session.io, comm, options));
  LeafCheck check;
  check.bytes = plan.totals().target_bytes;
  check.leaves = plan.totals().leaves;
  if (!comm.is_root()) return check;
  if (report.leaves.size() != expected.size()) return fail(Errc::internal, root + ": leaf counts differ");
  for (std::uint64_t leaf = 0; leaf < expected.size(); ++leaf) {
    if (report.leaves[leaf] == expected[leaf]) continue;
    check.bad.push_back(leaf);
    if (check.damage.size() >= kMostDamage) continue;
    CKPT_TRY(const LeafJob job, plan.leaf(leaf));
    const TargetFile& file = plan.targets()[job.file];
    const std::uint64_t first = file.placements.empty() ? 0 : file.placements.front().raw_offset;
    const std::uint64_t begin = first + job.leaf * kLeafBytes;
    Finding finding{.severity = Severity::damage,
                    .text = "xxh3 of bytes " + std::to_string(begin) + ".." + std::to_string(begin + job.bytes - 1) +
                            ": expected " + expected[leaf].hex() + ", got " + report.leaves[leaf].hex(),
                    .file = file.path.empty() ? root : join_path(root, file.path),
                    .offset = begin};
    if (!file.placements.empty() && file.placements.front().from == Placement::From::raw) {
      CKPT_TRY(const auto names, tensors_at(map, file.placements.front().raw_file, {begin, begin + job.bytes}, 3));
      for (const std::string& name : names) finding.tensor += (finding.tensor.empty() ? "" : ", ") + name;
    }
    check.damage.push_back(std::move(finding));
  }
  for (const LateFields::Wrong& wrong : report.late_wrong) {
    if (check.damage.size() >= kMostDamage) break;
    const std::string& path = plan.targets()[wrong.file].path;
    check.damage.push_back({.severity = Severity::damage,
                            .text = fmt::format("crc-32 of bytes {}..{}: {:08x} stored, computed {:08x}",
                                                wrong.covers.begin, wrong.covers.end - 1, wrong.stored, wrong.computed),
                            .file = path.empty() ? root : join_path(root, path),
                            .offset = wrong.offset});
  }
  return check;
}

}  // namespace ckpt
