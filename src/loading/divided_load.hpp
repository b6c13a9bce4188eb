#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/comm.hpp"
#include "format/universal/replica_groups.hpp"
#include "loading/load_plan.hpp"

namespace ckpt {

/// A load in which replicated data is read once: each member of a group reads some of the leaves that all members need,
/// and sends them to the others (exchange.hpp). Shares are even to a leaf: every leaf that would be verified if one
/// rank read everything is still verified.
class DividedLoad {
 public:
  /// Local. Until `prove`, this rank reads everything. `requests` and `groups` must outlive it.
  /// errors  as LoadPlan::collect
  static Result<DividedLoad> plan(const Map& map, std::span<const PartRead> requests, const ReplicaGroups& groups);

  /// Collective: finds the groups whose members all request the same bytes of the same files at the same places, by one
  /// all-reduce of 16 bytes per group; members of others read for themselves. False: no rank has such a group.
  ///
  /// groups  equal on all ranks, except for which of them are this rank's
  /// mine    null if this rank could not plan: it is in no group then
  static Result<bool> prove(Comm& comm, Deadline deadline, const ReplicaGroups& groups, DividedLoad* mine);

  /// The parts that this rank reads itself.
  LoadPlan reads(const Map& map, const LeavesOf& leaves, const LoadPlan::Options& options) const;

  /// Indices into scatters() of parts that this rank has read and `rank` requests too, and the reverse; both ranks know
  /// both, in one order.
  std::vector<std::uint32_t> sent_to(int rank) const;
  std::vector<std::uint32_t> received_from(int rank) const;

  const std::vector<LoadPlan::Scatter>& scatters() const { return scatters_; }
  std::span<const PartRead> requests() const { return requests_; }
  std::uint64_t received_bytes() const;

 private:
  /// The requests of the members of one group, divided.
  struct Shares {
    const ReplicaGroups::Group* group = nullptr;
    std::vector<std::uint32_t> scatters{};  // in the order of the files
    std::vector<std::size_t> ends{};        // of each member's, one after another, in `scatters`
    std::uint64_t hash = 0;
    bool proven = false;

    std::span<const std::uint32_t> of(std::size_t member) const {
      const std::size_t begin = member == 0 ? 0 : ends[member - 1];
      return std::span(scatters).subspan(begin, ends[member] - begin);
    }
  };
  void divide(Shares& shares) const;
  std::vector<std::uint32_t> common(int rank, bool sent) const;

  std::span<const PartRead> requests_{};
  std::vector<LoadPlan::Scatter> scatters_{};
  std::vector<Shares> shares_{};  // one per group of this rank
};

}  // namespace ckpt
