#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/comm.hpp"
#include "writers/load_plan.hpp"
#include "writers/replica_groups.hpp"

namespace ckpt {

/// A load whose ranks read once what several of them hold alike: each member of a group reads some of the leaves that
/// all members need, the others get from it what it has read (exchange.hpp). The members' shares are even to a leaf:
/// a leaf that was verified when one rank read everything is verified still.
class DividedLoad {
 public:
  /// Local. Until `prove`, this rank reads everything. `requests` and `groups` must outlive it.
  /// errors  as LoadPlan::collect
  static Result<DividedLoad> plan(const Map& map, std::span<const PartRead> requests, const ReplicaGroups& groups);

  /// Collective: finds the groups all of whose members want the same bytes of the same files at the same places, by
  /// one all-reduce of 16 bytes a group; members of others read for themselves. False: no group of any rank is one.
  ///
  /// groups  alike on all ranks but for which of them are this rank's
  /// mine    null where this rank could not plan: its groups then are none
  static Result<bool> prove(Comm& comm, Deadline deadline, const ReplicaGroups& groups, DividedLoad* mine);

  /// What this rank reads itself.
  LoadPlan reads(const Map& map, const LeavesOf& leaves, const LoadPlan::Options& options) const;

  /// Indices into scatters() of what this rank has read and `rank` wants too, and the reverse; both ranks know both,
  /// in one order.
  std::vector<std::uint32_t> sent_to(int rank) const;
  std::vector<std::uint32_t> received_from(int rank) const;

  const std::vector<LoadPlan::Scatter>& scatters() const { return scatters_; }
  std::span<const PartRead> requests() const { return requests_; }
  std::uint64_t received_bytes() const;

 private:
  /// What the members of one group want, divided.
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
  std::vector<Shares> shares_{};  // one a group of this rank
};

}  // namespace ckpt
