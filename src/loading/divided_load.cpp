#include "loading/divided_load.hpp"

#include <algorithm>
#include <utility>

#include "engine/run/fetch.hpp"
#include "format/hash.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};  // in both words: equal to no hash and its complement

void hash_scatter(Hasher& hasher, const LoadPlan::Scatter& scatter, std::uint64_t request) {
  const Copy& copy = scatter.copy;
  hasher.update_u64(request);
  hasher.update_u64(copy.source_file);
  hasher.update_u64(copy.source_offset);
  hasher.update_u64(copy.target_offset);
  hasher.update_u64(static_cast<std::uint64_t>(copy.from) << 16 | static_cast<std::uint64_t>(copy.to) << 8 |
                    static_cast<std::uint64_t>(copy.through));
  hasher.update_u64(copy.dims.size());
  for (const Copy::Dim& dim : copy.dims) {
    hasher.update_u64(dim.count);
    hasher.update_u64(dim.source_stride);
    hasher.update_u64(dim.target_stride);
  }
}

}  // namespace

Result<DividedLoad> DividedLoad::plan(const Map& map, std::span<const PartRead> requests, const ReplicaGroups& groups) {
  DividedLoad load;
  load.requests_ = requests;
  CKPT_TRY(load.scatters_, LoadPlan::collect(map, requests));
  for (const ReplicaGroups::Group& group : groups.groups()) load.shares_.push_back({.group = &group});
  if (load.shares_.empty()) return load;

  // A request's number among those of its group is the same on all members, if they request the same.
  std::vector<std::uint64_t> numbers(requests.size());
  std::vector<std::uint64_t> counts(load.shares_.size(), 0);
  std::vector<std::uint32_t> group_of(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    group_of[i] = groups.group_of(requests[i].row);
    if (group_of[i] != ReplicaGroups::kNoGroup) numbers[i] = counts[group_of[i]]++;
  }
  std::vector<Hasher> hashers(load.shares_.size());
  for (std::uint32_t i = 0; i < load.scatters_.size(); ++i) {
    const LoadPlan::Scatter& scatter = load.scatters_[i];
    const std::uint32_t group = group_of[scatter.request];
    if (group == ReplicaGroups::kNoGroup) continue;
    load.shares_[group].scatters.push_back(i);
    hash_scatter(hashers[group], scatter, numbers[scatter.request]);
  }
  for (std::size_t i = 0; i < load.shares_.size(); ++i) {
    hashers[i].update(map.id);
    load.shares_[i].hash = hashers[i].digest().words()[0];
    load.divide(load.shares_[i]);
  }
  return load;
}

/// By bytes, each leaf to one member: the one whose even share of all bytes contains the middle of the leaf.
void DividedLoad::divide(Shares& shares) const {
  const std::uint64_t members = shares.group->members.size();
  std::uint64_t total = 0;
  for (const std::uint32_t i : shares.scatters) total += target_volume(scatters_[i].copy);
  const std::uint64_t part = total / members + 1;
  shares.ends.assign(static_cast<std::size_t>(members), 0);
  std::uint64_t before = 0;
  for (std::size_t at = 0; at < shares.scatters.size();) {
    const LoadPlan::Scatter& first = scatters_[shares.scatters[at]];
    std::uint64_t bytes = 0;
    while (at < shares.scatters.size()) {
      const LoadPlan::Scatter& next = scatters_[shares.scatters[at]];
      if (next.copy.source_file != first.copy.source_file || next.leaf != first.leaf) break;
      bytes += target_volume(next.copy);
      ++at;
    }
    shares.ends[static_cast<std::size_t>((before + bytes / 2) / part)] = at;
    before += bytes;
  }
  for (std::size_t i = 1; i < shares.ends.size(); ++i) shares.ends[i] = std::max(shares.ends[i], shares.ends[i - 1]);
}

Result<bool> DividedLoad::prove(Comm& comm, Deadline deadline, const ReplicaGroups& groups, DividedLoad* mine) {
  if (groups.number_end() == 0) return false;
  // The maximum of a value and that of its complement are complements if all ranks have the same value, and otherwise
  // not; a rank in no group adds nothing.
  std::vector<std::uint64_t> words(static_cast<std::size_t>(2 * groups.number_end()), 0);
  const auto at = [](const ReplicaGroups::Group& group) { return static_cast<std::size_t>(2 * group.number); };
  for (std::size_t i = 0; i < groups.groups().size(); ++i) {
    const std::size_t word = at(groups.groups()[i]);
    words[word] = mine != nullptr ? mine->shares_[i].hash : kNone;
    words[word + 1] = mine != nullptr ? ~mine->shares_[i].hash : kNone;
  }
  CKPT_CHECK(comm.max(words, deadline));
  bool any = false;
  for (std::size_t word = 0; word < words.size(); word += 2) any = any || words[word] == ~words[word + 1];
  if (mine == nullptr) return any;
  for (Shares& shares : mine->shares_) {
    const std::size_t word = at(*shares.group);
    shares.proven = words[word] == ~words[word + 1];
  }
  return any;
}

LoadPlan DividedLoad::reads(const Map& map, const LeavesOf& leaves, const LoadPlan::Options& options) const {
  std::vector<bool> is_others(scatters_.size(), false);
  for (const Shares& shares : shares_) {
    if (!shares.proven) continue;
    for (const std::uint32_t i : shares.scatters) is_others[i] = true;
    for (const std::uint32_t i : shares.of(shares.group->place)) is_others[i] = false;
  }
  std::vector<LoadPlan::Scatter> mine;
  for (std::size_t i = 0; i < scatters_.size(); ++i) {
    if (!is_others[i]) mine.push_back(scatters_[i]);
  }
  return LoadPlan::of(map, std::move(mine), leaves, options);
}

std::vector<std::uint32_t> DividedLoad::common(int rank, bool sent) const {
  std::vector<std::uint32_t> out;
  for (const Shares& shares : shares_) {
    const std::vector<int>& members = shares.group->members;
    const auto found = std::lower_bound(members.begin(), members.end(), rank);
    if (!shares.proven || found == members.end() || *found != rank) continue;
    const auto theirs = shares.of(static_cast<std::size_t>(found - members.begin()));
    const auto part = sent ? shares.of(shares.group->place) : theirs;
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<std::uint32_t> DividedLoad::sent_to(int rank) const {
  return common(rank, true);
}

std::vector<std::uint32_t> DividedLoad::received_from(int rank) const {
  return common(rank, false);
}

std::uint64_t DividedLoad::received_bytes() const {
  std::uint64_t bytes = 0;
  for (const Shares& shares : shares_) {
    if (!shares.proven) continue;
    for (const std::uint32_t i : shares.scatters) bytes += target_volume(scatters_[i].copy);
    for (const std::uint32_t i : shares.of(shares.group->place)) bytes -= target_volume(scatters_[i].copy);
  }
  return bytes;
}

}  // namespace ckpt
