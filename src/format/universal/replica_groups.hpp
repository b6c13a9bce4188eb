#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/universal/declared_model.hpp"

namespace ckpt {

/// Which ranks hold the same parts of the model's tensors, computed from its layouts alone. Tensors whose layouts say
/// so for the same ranks share a group. Whether those ranks also ask for the same is not known here.
class ReplicaGroups {
 public:
  struct Group {
    std::uint64_t number = 0;    ///< the same on all members; no other group of any rank has it
    std::vector<int> members{};  ///< ranks, ascending; at least two
    std::size_t place = 0;       ///< this rank's in `members`
  };

  ReplicaGroups() = default;
  /// Ranks from `ranks` on are in no group, whatever the meshes say.
  ReplicaGroups(const Model& model, int rank, int ranks);

  /// Those of this rank, by number.
  std::span<const Group> groups() const { return groups_; }
  /// One past the highest number of any rank's group: the same on all ranks that have the same model.
  std::uint64_t number_end() const { return number_end_; }
  /// Index into groups() for a row of the model; kNoGroup: this rank alone holds its part, or none.
  std::uint32_t group_of(std::size_t row) const { return row < by_row_.size() ? by_row_[row] : kNoGroup; }
  static constexpr std::uint32_t kNoGroup = 0xffffffff;

 private:
  std::vector<Group> groups_{};
  std::vector<std::uint32_t> by_row_{};
  std::uint64_t number_end_ = 0;
};

}  // namespace ckpt
