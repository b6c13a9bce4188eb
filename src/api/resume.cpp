#include "api/resume.hpp"

#include <chrono>
#include <span>
#include <string_view>
#include <utility>

#include "api/check.hpp"
#include "api/pool.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other between the two halves.
constexpr auto kPatience = std::chrono::minutes(10);

void add(Hasher& hasher, std::string_view text) {
  hasher.update_u64(text.size());
  hasher.update(text);
}

void add(Hasher& hasher, const Placement& placement) {
  hasher.update_u64(placement.offset);
  hasher.update_u64(placement.bytes);
  hasher.update_u32(static_cast<std::uint32_t>(placement.from));
  hasher.update_u32(placement.tensor);
  hasher.update_u32(static_cast<std::uint32_t>(placement.dtype));
  hasher.update_u32(placement.raw_file);
  hasher.update_u64(placement.raw_offset);
  add(hasher, placement.literal);
  if (!placement.chunk) return hasher.update_u32(0);
  hasher.update_u32(1);
  hasher.update_u64(placement.chunk->box.size.size());
  for (const std::uint64_t offset : placement.chunk->box.offset) hasher.update_u64(offset);
  for (const std::uint64_t size : placement.chunk->box.size) hasher.update_u64(size);
  const Extent flat = placement.chunk->flat.value_or(Extent{0, UINT64_MAX});
  hasher.update_u64(flat.begin);
  hasher.update_u64(flat.end);
}

/// One bit a leaf, for a message; "" where none is set.
std::string to_bits(const std::vector<bool>& leaves) {
  std::string out;
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    if (!leaves[leaf]) continue;
    out.resize((leaves.size() + 7) / 8);
    out[leaf / 8] = static_cast<char>(static_cast<unsigned char>(out[leaf / 8]) | (1u << (leaf % 8)));
  }
  return out;
}

std::vector<bool> from_bits(std::string_view bits, std::uint64_t leaves) {
  std::vector<bool> out(static_cast<std::size_t>(leaves));
  for (std::size_t leaf = 0; leaf < out.size() && leaf / 8 < bits.size(); ++leaf)
    out[leaf] = (static_cast<unsigned>(static_cast<unsigned char>(bits[leaf / 8])) >> (leaf % 8) & 1u) != 0;
  return out;
}

/// Collective: rank 0's leaves on all ranks; empty where it has none.
Result<std::vector<bool>> tell(Comm& comm, const std::vector<bool>& mine, std::uint64_t leaves) {
  std::string bits = to_bits(mine);
  CKPT_CHECK(comm.broadcast(bits, std::chrono::steady_clock::now() + kPatience));
  return bits.empty() ? std::vector<bool>() : from_bits(bits, leaves);
}

/// Collective: the hashes of these leaves as they stand on the disk, on rank 0.
Result<std::vector<Hash128>> hash_leaves(Session& session, const Plan& plan, const std::string& root,
                                         const std::vector<bool>& leaves) {
  Written written = as_written(plan);
  CKPT_TRY(Plan check, Plan::make(written.map, std::move(written.files)));
  std::vector<bool> others = leaves;
  others.flip();
  check.leave_out(others);
  CKPT_TRY(RunOptions options, run_options(session, check));
  options.source_root = root;
  const std::uint64_t before = check.left_out_bytes();
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      session.progress({"check finished", done - before, total - before});
    };
  }
  CKPT_TRY(RunReport report, run(check, session.io, session.comm, options));
  return std::move(report.leaves);
}

}  // namespace

Hash128 resume_hash(const Plan& plan, bool checks_crc) {
  Hasher hasher;
  hasher.update_u32(checks_crc ? 1 : 0);
  hasher.update_u64(plan.targets().size());
  for (const TargetFile& file : plan.targets()) {
    add(hasher, file.path);
    hasher.update_u64(file.bytes);
    hasher.update_u64(file.placements.size());
    for (const Placement& placement : file.placements) add(hasher, placement);
  }
  return hasher.digest();
}

void Resumed::add_to(RunReport& report) const {
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    if (!leaves[leaf].is_finished()) continue;
    report.leaves[leaf] = leaves[leaf].hash;
    report.casts += leaves[leaf].casts;
    report.crc_checked += leaves[leaf].crc_checked;
  }
}

Result<Resumed> take_up(Session& session, Plan& plan, const Publication* publication, const std::string& root) {
  const std::uint64_t leaves = plan.totals().leaves;
  Resumed out;
  if (publication != nullptr) out.leaves = publication->taken_over();
  std::vector<bool> finished;
  for (const RecordedLeaf& leaf : out.leaves) finished.push_back(leaf.is_finished());
  CKPT_TRY(finished, tell(session.comm, finished, leaves));
  if (finished.empty()) {
    out.leaves.clear();
    return out;
  }
  CKPT_TRY(const std::vector<Hash128> hashes, hash_leaves(session, plan, root, finished));
  if (publication != nullptr) {
    for (std::size_t leaf = 0; leaf < out.leaves.size(); ++leaf) {
      finished[leaf] = finished[leaf] && hashes[leaf] == out.leaves[leaf].hash;
      if (!finished[leaf]) out.leaves[leaf] = {};
    }
  }
  CKPT_TRY(finished, tell(session.comm, finished, leaves));
  if (finished.empty()) return out;
  plan.leave_out(finished);
  out.leaf_count = leaves - plan.positions();
  out.bytes = plan.left_out_bytes();
  return out;
}

Error leave_for_next(Publication* publication, Error error) {
  const Errc code = error.verdict.value_or(error.code);
  if (publication == nullptr || (code != Errc::interrupted && code != Errc::peer_failed)) return error;
  const auto left = publication->leave();
  if (left && *left)
    error.hint = "run the same command again: it goes on from " + publication->root() +
                 ", which keeps what is finished (--restart begins anew)";
  return error;
}

Result<std::vector<Finding>> find_left_overs(Io& io, const std::string& target, const std::string& id, bool dry_run) {
  const std::string path = join_path(target, "");
  const std::string stem = base_name(path) + std::string(kPartialMark);
  CKPT_TRY(const auto entries, io.list(parent_path(path)));
  std::vector<Finding> out;
  for (const DirEntry& entry : entries) {
    if (!entry.name.starts_with(stem)) continue;
    const std::string other = entry.name.substr(stem.size());
    if (other.empty() || other.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
    const std::string where = partial_path(path, other);
    if (other != id)
      out.push_back({.text = where +
                             " was left by another conversion to this target, of other parameters or another source; "
                             "remove it if that one does not run any more",
                     .file = where});
    else if (dry_run)
      out.push_back({.text = where + " was left by this conversion: the next run goes on from it", .file = where});
  }
  return out;
}

}  // namespace ckpt
