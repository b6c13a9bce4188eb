#include "api/convert/resume.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "api/convert/check.hpp"
#include "api/convert/pool.hpp"
#include "engine/run/checks.hpp"
#include "engine/run/fetch.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

// How long ranks wait for each other between the two halves.
constexpr auto kHalvesPatience = std::chrono::minutes(10);

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

/// One bit per leaf, for a message; "" if none is set.
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

/// Collective: rank 0's leaves on all ranks; empty if it has none.
Result<std::vector<bool>> share_from_root(Comm& comm, const std::vector<bool>& mine, std::uint64_t leaves) {
  std::string bits = to_bits(mine);
  CKPT_CHECK(comm.broadcast(bits, std::chrono::steady_clock::now() + kHalvesPatience));
  return bits.empty() ? std::vector<bool>() : from_bits(bits, leaves);
}

/// Collective: the hashes of these leaves from the disk, on rank 0.
Result<std::vector<Hash128>> hash_leaves(Session& session, const Plan& plan, const std::string& root,
                                         const std::vector<bool>& leaves, LateFields& late) {
  Written written = as_written(plan);
  CKPT_TRY(Plan check, Plan::make(written.map, std::move(written.files)));
  std::vector<bool> others = leaves;
  others.flip();
  check.skip_leaves(others);
  CKPT_TRY(RunOptions options, run_options(session, check));
  options.source_root = root;
  options.late = &late;
  const std::uint64_t before = check.left_out_bytes();
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      session.progress({"check finished", done - before, total - before});
    };
  }
  CKPT_TRY(RunReport report, run(check, session.io, session.comm, options));
  return std::move(report.leaves);
}

/// Collective: a number that no reader of a finished leaf has.
Result<std::uint32_t> number_reader(Comm& comm, const std::vector<RecordedLeaf>& leaves) {
  std::uint32_t first = 0;
  for (const RecordedLeaf& leaf : leaves) first = leaf.is_finished() ? std::max(first, leaf.reader) : first;
  std::string text = std::to_string(first + 1);
  CKPT_CHECK(comm.broadcast(text, std::chrono::steady_clock::now() + kHalvesPatience));
  return parse_number<std::uint32_t>(text).value_or(first) + static_cast<std::uint32_t>(comm.rank());
}

/// The readers of checksummed entries, and which of them the leaves need completely.
class EntryReaders {
 public:
  /// The leaf that needs these copies is finished, or it is not.
  void note(const LeafJob& job, const RecordedLeaf& known) {
    const std::uint32_t reader = known.is_finished() ? known.reader : kNoneAlone;
    for (const Copy& copy : job.copies) {
      if (!copy.crc) continue;
      const auto [at, is_new] = readers_.emplace(key_of(entry_of(copy)), reader);
      if (!is_new && at->second != reader) at->second = kNoneAlone;
      const Extent needed{std::max(copy.crc->begin, copy.source_offset),
                          std::min(copy.crc->end, copy.source_offset + source_span(copy))};
      for (const Extent part : needed_.take(entry_of(copy), needed)) needed_.add(entry_of(copy), part, 0);
    }
  }
  /// All leaves were recorded. The reader may have been killed before it read the padding of an entry.
  void finish() {
    for (const CrcJoiner::Open& open : needed_.open()) {
      if (open.missing_bytes() <= kMostReadForChecksum) readers_[key_of(open.entry)] = kNoneAlone;
    }
  }
  bool one_had_whole(const Copy& copy) const { return !copy.crc || readers_.at(key_of(entry_of(copy))) != kNoneAlone; }

 private:
  static constexpr std::uint32_t kNoneAlone = UINT32_MAX;
  static std::uint64_t key_of(const CrcJoiner::Entry& entry) {
    const std::array<std::uint64_t, 4> words{entry.file, entry.stream ? *entry.stream + 1 : 0, entry.crc.begin,
                                             entry.crc.end};
    return hash64({reinterpret_cast<const char*>(words.data()), sizeof words});
  }
  std::unordered_map<std::uint64_t, std::uint32_t> readers_;
  CrcJoiner needed_;  // its checksums mean nothing
};

/// The finished leaves that hold a part of an entry that no single reader read completely. Their other partial entries
/// were compared: `crcs` skips them.
Result<std::vector<bool>> leaves_to_read(const Plan& plan, const std::vector<RecordedLeaf>& finished, CrcJoiner& crcs) {
  EntryReaders readers;
  for (std::uint64_t leaf = 0; leaf < finished.size(); ++leaf) {
    CKPT_TRY(const LeafJob job, plan.leaf(leaf));
    readers.note(job, finished[static_cast<std::size_t>(leaf)]);
  }
  readers.finish();
  std::vector<bool> out(finished.size());
  for (std::uint64_t leaf = 0; leaf < finished.size(); ++leaf) {
    if (!finished[static_cast<std::size_t>(leaf)].is_finished()) continue;
    CKPT_TRY(const LeafJob job, plan.leaf(leaf));
    if (std::all_of(job.copies.begin(), job.copies.end(), [&](const Copy& c) { return readers.one_had_whole(c); }))
      continue;
    out[static_cast<std::size_t>(leaf)] = true;
    for (const Copy& copy : job.copies) {
      if (copy.crc && readers.one_had_whole(copy)) crcs.skip(entry_of(copy));
    }
  }
  return out;
}

/// Collective: reads from the source, and only hashes, finished leaves whose entries are not all compared.
Result<> read_again(Session& session, const Plan& plan, const TakeUp& how, Resumed& resumed) {
  std::vector<bool> chosen;
  Result<> looked;
  if (session.comm.is_root()) {
    auto some = leaves_to_read(plan, resumed.leaves, *how.crcs);
    if (some) {
      chosen = *std::move(some);
    } else {
      looked = fail(std::move(some).error());
    }
  }
  const auto deadline = [] { return std::chrono::steady_clock::now() + kHalvesPatience; };
  CKPT_CHECK(agree(session.comm, deadline(), std::move(looked)));
  CKPT_TRY(chosen, share_from_root(session.comm, chosen, plan.totals().leaves));
  if (chosen.empty()) return {};
  CKPT_TRY(Plan again, Plan::make(plan.source(), plan.targets()));
  std::vector<bool> others = chosen;
  others.flip();
  again.skip_leaves(others);
  CKPT_TRY(RunOptions options, run_options(session, again));
  options.source_root = how.source_root;
  CrcJoiner own;  // when this ends, rank 0 has what other ranks read of an entry
  options.crcs = session.comm.is_root() ? how.crcs : &own;
  const std::uint64_t before = again.left_out_bytes();
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      session.progress({"check source of finished", done - before, total - before});
    };
  }
  CKPT_TRY(const RunReport report, run(again, session.io, session.comm, options));
  resumed.read_bytes = report.read_bytes;
  resumed.crc_checked = report.crc_checked;
  Result<> same;
  for (std::size_t leaf = 0; same && leaf < resumed.leaves.size(); ++leaf) {
    if (!chosen[leaf] || report.leaves[leaf] == resumed.leaves[leaf].hash) continue;
    same = fail({.code = Errc::checksum,
                 .message = how.source_root + ": returned different bytes than during the killed run",
                 .file = how.source_root,
                 .hint = "the two reads differ; rerun to start over"});
  }
  return agree(session.comm, deadline(), std::move(same));
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
    hasher.update_u64(file.late.size());
    for (const LateField& field : file.late) {
      for (const std::uint64_t number : {field.offset, field.covers.begin, field.covers.end}) hasher.update_u64(number);
    }
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

Result<Resumed> take_up(Session& session, Plan& plan, const TakeUp& how) {
  const std::uint64_t leaves = plan.totals().leaves;
  const Publication* publication = how.publication;
  Resumed out;
  if (publication != nullptr) out.leaves = publication->taken_over();
  CKPT_TRY(out.reader, number_reader(session.comm, out.leaves));
  std::vector<bool> finished;
  for (const RecordedLeaf& leaf : out.leaves) finished.push_back(leaf.is_finished());
  CKPT_TRY(finished, share_from_root(session.comm, finished, leaves));
  if (finished.empty()) {
    out.leaves.clear();
    return out;
  }
  LateFields late(plan.targets());  // also of leaves that do not match the record
  CKPT_TRY(const std::vector<Hash128> hashes, hash_leaves(session, plan, how.target_root, finished, late));
  if (publication != nullptr) {
    for (std::size_t leaf = 0; leaf < out.leaves.size(); ++leaf) {
      finished[leaf] = finished[leaf] && hashes[leaf] == out.leaves[leaf].hash;
      if (!finished[leaf]) out.leaves[leaf] = {};
    }
  }
  CKPT_TRY(finished, share_from_root(session.comm, finished, leaves));
  if (finished.empty()) return out;
  how.late->adopt(late, finished);
  if (how.crcs != nullptr) CKPT_CHECK(read_again(session, plan, how, out));
  plan.skip_leaves(finished);
  out.leaf_count = leaves - plan.positions();
  out.bytes = plan.left_out_bytes();
  return out;
}

Result<> read_padding(Session& session, const Plan& plan, const RunOptions& options, RunReport& report) {
  TargetFile rest = missing_ranges(*options.crcs, kMostReadForChecksum);
  if (rest.bytes == 0) return {};
  std::vector<TargetFile> files;
  files.push_back(std::move(rest));
  CKPT_TRY(const Plan padding, Plan::make(plan.source(), std::move(files)));
  CKPT_TRY(RunOptions read, run_options(session, padding));
  read.source_root = options.source_root;
  read.crcs = options.crcs;
  const auto solo = Comm::solo();
  CKPT_TRY(const RunReport done, run(padding, session.io, *solo, read));
  report.read_bytes += done.read_bytes;
  report.crc_checked += done.crc_checked;
  report.crc_unread = done.crc_unread;
  return {};
}

Error keep_for_resume(Publication* publication, Error error) {
  const Errc code = error.verdict.value_or(error.code);
  if (publication == nullptr || (code != Errc::interrupted && code != Errc::peer_failed)) return error;
  const auto left = publication->keep_partial();
  if (left && *left)
    error.hint = "run the same command again to continue from " + publication->root() + " (--restart starts over)";
  return error;
}

Result<std::vector<Finding>> find_leftovers(Io& io, const std::string& target, const std::string& id, bool dry_run) {
  const std::string path = join_path(target, "");
  CKPT_TRY(const auto entries, io.list(parent_path(path)));
  std::vector<Finding> out;
  for (const DirEntry& entry : entries) {
    const auto partial = parse_partial_name(entry.name);
    if (!partial || partial->target != base_name(path)) continue;
    const std::string where = partial_path(path, partial->id);
    if (partial->id != id)
      out.push_back({.text = where +
                             " was left by a conversion to this target with other options or another "
                             "source; 'ckpt repair " +
                             where + " --apply' removes it unless that conversion is running",
                     .file = where});
    else if (dry_run)
      out.push_back({.text = where + " was left by this conversion; the next run continues from it", .file = where});
  }
  return out;
}

}  // namespace ckpt
