#include "api/convert/compare.hpp"

#include <algorithm>
#include <utility>

#include "api/convert/pool.hpp"
#include "api/convert/progress_names.hpp"
#include "engine/run/run.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

/// One leaf's worth of small tensors, or one large tensor.
struct CompareGroup {
  std::vector<std::size_t> pairs;
  std::uint64_t bytes = 0;
};

Result<std::vector<TargetFile>> lay_out(const Map& map, const std::vector<TensorPair>& pairs, bool left,
                                        const std::vector<CompareGroup>& groups) {
  std::vector<TargetFile> files;
  for (const CompareGroup& group : groups) {
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

/// Small tensors share a leaf if `together`; else each tensor is a separate group.
Result<std::vector<CompareGroup>> make_groups(const Map& map, const std::vector<TensorPair>& pairs,
                                              const std::vector<std::size_t>& wanted, bool together) {
  std::vector<CompareGroup> groups;
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
  const ProgressNames progress_names(plan);
  if (session.progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      session.progress({phase, done, total, progress_names.at(done)});
    };
  }
  const auto solo = Comm::solo();
  return run(plan, session.io, *solo, options);
}

/// Indices of the groups whose hashes differ.
Result<std::vector<std::size_t>> differing(Session& session, const Side& left, const Side& right,
                                           const std::vector<TensorPair>& pairs,
                                           const std::vector<CompareGroup>& groups, const std::string& phase) {
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

}  // namespace ckpt
