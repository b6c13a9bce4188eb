#include "api/compare.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "api/check.hpp"
#include "api/pool.hpp"
#include "engine/run.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

/// One leaf's worth of small tensors, or one large tensor.
struct Group {
  std::vector<std::size_t> pairs;
  std::uint64_t bytes = 0;
};

Result<std::vector<TargetFile>> lay_out(const Map& map, const std::vector<TensorPair>& pairs, bool left,
                                        const std::vector<Group>& groups) {
  std::vector<TargetFile> files;
  for (const Group& group : groups) {
    TargetFile& file = files.emplace_back();
    for (const std::size_t index : group.pairs) {
      const std::uint32_t tensor = left ? pairs[index].left : pairs[index].right;
      CKPT_TRY(const std::uint64_t bytes, tensor_bytes(pairs[index].as, map.tensors[tensor].shape));
      file.bytes = round_up(file.bytes, 8);
      if (bytes == 0) continue;
      file.placements.push_back({.offset = file.bytes, .bytes = bytes, .tensor = tensor, .dtype = pairs[index].as});
      file.bytes += bytes;
    }
  }
  return files;
}

/// Small tensors share a leaf where `together`; else each tensor is a group of its own.
Result<std::vector<Group>> make_groups(const Map& map, const std::vector<TensorPair>& pairs,
                                       const std::vector<std::size_t>& wanted, bool together) {
  std::vector<Group> groups;
  bool open = false;
  for (const std::size_t index : wanted) {
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(pairs[index].as, map.tensors[pairs[index].left].shape));
    const std::uint64_t padded = round_up(bytes, 8);
    if (!together || !open || groups.back().bytes + padded > kLeafBytes) {
      groups.emplace_back();
      open = together && padded < kLeafBytes;
    }
    groups.back().pairs.push_back(index);
    groups.back().bytes += padded;
  }
  return groups;
}

Result<RunReport> hash_side(Session& session, const Side& side, const Plan& plan, const std::string& phase) {
  CKPT_TRY(RunOptions options, run_options(session, plan));
  options.source_root = side.root;
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) { session.progress({phase, done, total}); };
  }
  const auto solo = Comm::solo();
  return run(plan, session.io, *solo, options);
}

/// Indices of the groups whose hashes differ.
Result<std::vector<std::size_t>> differing(Session& session, const Side& left, const Side& right,
                                           const std::vector<TensorPair>& pairs, const std::vector<Group>& groups,
                                           const std::string& phase) {
  CKPT_TRY(auto left_files, lay_out(left.map, pairs, true, groups));
  CKPT_TRY(auto right_files, lay_out(right.map, pairs, false, groups));
  std::vector<std::uint64_t> leaf_counts;
  for (const TargetFile& file : left_files) leaf_counts.push_back(file.leaf_count());
  CKPT_TRY(const Plan left_plan, Plan::make(left.map, std::move(left_files)));
  CKPT_TRY(const Plan right_plan, Plan::make(right.map, std::move(right_files)));
  CKPT_TRY(const RunReport left_run, hash_side(session, left, left_plan, phase));
  CKPT_TRY(const RunReport right_run, hash_side(session, right, right_plan, phase));
  std::vector<std::size_t> out;
  std::size_t leaf = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    bool equal = true;
    for (std::uint64_t i = 0; i < leaf_counts[group]; ++i, ++leaf) {
      equal = equal && left_run.leaves[leaf] == right_run.leaves[leaf];
    }
    if (!equal) out.push_back(group);
  }
  return out;
}

/// Takes one holder of every chunk.
class ReplicaIndex final : public ChunkIndex {
 public:
  ReplicaIndex(std::shared_ptr<const ChunkIndex> all, std::size_t n) : all_(std::move(all)), n_(n) {}

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override {
    std::vector<std::pair<PlacedChunk, std::size_t>> held;  // and how many holders came before it
    CKPT_CHECK(all_->chunks(tensor, elements, [&](const PlacedChunk& placed) -> Result<> {
      for (auto& [chosen, count] : held) {
        if (!(chosen.chunk == placed.chunk)) continue;
        ++count;
        if (count <= n_) chosen = placed;
        return {};
      }
      held.emplace_back(placed, 0);
      return {};
    }));
    for (const auto& [chosen, count] : held) CKPT_CHECK(visit(chosen));
    return {};
  }

 private:
  std::shared_ptr<const ChunkIndex> all_;
  std::size_t n_;
};

}  // namespace

Result<std::vector<std::size_t>> compare_tensors(Session& session, const Side& left, const Side& right,
                                                 const std::vector<TensorPair>& pairs, const std::string& phase) {
  std::vector<std::size_t> all(pairs.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  CKPT_TRY(const auto groups, make_groups(left.map, pairs, all, true));
  CKPT_TRY(const auto bad_groups, differing(session, left, right, pairs, groups, phase));

  std::vector<std::size_t> bad;
  std::vector<std::size_t> suspects;  // tensors that share a leaf with others: compared again one by one
  for (const std::size_t group : bad_groups) {
    auto& into = groups[group].pairs.size() == 1 ? bad : suspects;
    into.insert(into.end(), groups[group].pairs.begin(), groups[group].pairs.end());
  }
  if (!suspects.empty()) {
    CKPT_TRY(const auto single, make_groups(left.map, pairs, suspects, false));
    CKPT_TRY(const auto bad_single, differing(session, left, right, pairs, single, phase));
    for (const std::size_t group : bad_single) bad.push_back(single[group].pairs.front());
  }
  std::sort(bad.begin(), bad.end());
  return bad;
}

Result<ReadThrough> read_through(Session& session, const Side& side, const std::vector<TensorPair>& tensors,
                                 const std::string& phase) {
  std::vector<std::size_t> all(tensors.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  CKPT_TRY(const auto groups, make_groups(side.map, tensors, all, true));
  CKPT_TRY(auto files, lay_out(side.map, tensors, true, groups));
  ReadThrough out;
  for (const TargetFile& file : files) out.bytes += file.bytes;
  CKPT_TRY(const Plan plan, Plan::make(side.map, std::move(files)));
  CKPT_TRY(const RunReport report, hash_side(session, side, plan, phase));
  out.crc_checked = report.crc_checked;
  if (out.crc_checked == 0) {
    CKPT_TRY(out.crc_unread, moves_checksummed(plan));
  }
  return out;
}

std::vector<TensorPair> master_pairs(const Map& map) {
  std::unordered_map<std::string, std::uint32_t> params;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    if (map.tensors[i].role == Role::param) params.emplace(map.tensors[i].name, i);
  }
  std::vector<TensorPair> pairs;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& master = map.tensors[i];
    if (master.role != Role::slot || master.slot != "master") continue;
    const auto found = params.find(master.parameter);
    if (found == params.end()) continue;
    const Tensor& param = map.tensors[found->second];
    if (param.shape != master.shape || !is_castable(param.dtype) || !is_castable(master.dtype)) continue;
    pairs.push_back({found->second, i, param.dtype});
  }
  return pairs;
}

Map replica_view(const Map& map, std::size_t n) {
  Map view = map;
  view.index = std::make_shared<ReplicaIndex>(map.index, n);
  return view;
}

Result<std::size_t> replica_count(const Map& map) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    std::vector<std::pair<Chunk, std::size_t>> counts;
    CKPT_TRY(const std::uint64_t elements, checked_volume(map.tensors[i].shape));
    CKPT_CHECK(map.index->chunks(i, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
      for (auto& [chunk, count] : counts) {
        if (!(chunk == placed.chunk)) continue;
        most = std::max(most, ++count);
        return {};
      }
      counts.emplace_back(placed.chunk, 1);
      most = std::max<std::size_t>(most, 1);
      return {};
    }));
  }
  return most;
}

}  // namespace ckpt
