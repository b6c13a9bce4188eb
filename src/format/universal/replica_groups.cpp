#include "format/universal/replica_groups.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "format/universal/mesh_pieces.hpp"

namespace ckpt {
namespace {

using universal::Layout;

// A model with more groups than this has its last ones read by each rank: the proof sends 16 bytes for each.
constexpr std::uint64_t kMostGroups = std::uint64_t{1} << 16;

/// Axes along which the tensor is divided in more than one part, ascending.
std::vector<std::uint32_t> dividing_axes(const Layout& layout) {
  std::vector<std::uint32_t> axes;
  for (const Layout::Cut& cut : layout.cuts) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  if (layout.flat) axes.insert(axes.end(), layout.flat->axes.begin(), layout.flat->axes.end());
  std::erase_if(axes, [&](std::uint32_t axis) { return layout.mesh.axes[axis].size == 1; });
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// The part of a layout that decides which ranks hold the same: layouts with equal parts have the same groups.
std::vector<std::uint64_t> key_of(const Layout& layout, const std::vector<std::uint32_t>& axes) {
  std::vector<std::uint64_t> key{layout.mesh.axes.size()};
  for (const universal::Axis& axis : layout.mesh.axes) key.push_back(axis.size);
  key.insert(key.end(), axes.begin(), axes.end());
  for (const Layout::At& at : layout.at) {
    if (at.indices.size() == layout.mesh.axes[at.axis].size) continue;  // all of them
    key.push_back(universal::kMaxAxes + at.axis);                       // no dividing axis is as high
    key.push_back(at.indices.size());
    key.insert(key.end(), at.indices.begin(), at.indices.end());
  }
  return key;
}

bool holds(const Layout& layout, std::span<const std::uint64_t> coordinates) {
  return std::all_of(layout.at.begin(), layout.at.end(), [&](const Layout::At& at) {
    return std::binary_search(at.indices.begin(), at.indices.end(), coordinates[at.axis]);
  });
}

}  // namespace

ReplicaGroups::ReplicaGroups(const Model& model, int rank, int ranks) {
  const auto mine = static_cast<std::uint64_t>(rank);
  std::map<std::vector<std::uint64_t>, std::uint32_t> known;  // by key: index into groups_
  for (const universal::TensorRow& row : model.rows) {
    const Layout& layout = model.layouts[row.layout];
    const std::vector<std::uint32_t> axes = dividing_axes(layout);
    const auto [at, is_new] = known.try_emplace(key_of(layout, axes), kNoGroup);
    if (is_new) {
      const universal::Replicas replicas(layout);
      const std::uint64_t parts = universal::part_count(layout.mesh, axes);
      const auto writers = layout.mesh.writer_count();
      if (replicas.count > 1 && writers && parts <= kMostGroups - number_end_) {
        if (mine < *writers) {
          std::vector<std::uint64_t> coordinates = layout.mesh.coordinates(mine);
          Group group{.number = number_end_ + universal::part_number(layout.mesh, axes, coordinates)};
          if (holds(layout, coordinates)) {
            for (std::uint64_t n = 0; n < replicas.count; ++n) {
              replicas.set(n, coordinates);
              const std::uint64_t member = layout.mesh.writer(coordinates);
              if (member == mine) group.place = group.members.size();
              if (member < static_cast<std::uint64_t>(ranks)) group.members.push_back(static_cast<int>(member));
            }
          }
          if (group.members.size() > 1) {
            at->second = static_cast<std::uint32_t>(groups_.size());
            groups_.push_back(std::move(group));
          }
        }
        number_end_ += parts;
      }
    }
    by_row_.push_back(at->second);
  }
}

}  // namespace ckpt
