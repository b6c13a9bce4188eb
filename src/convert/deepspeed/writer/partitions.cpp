#include "convert/deepspeed/writer/partitions.hpp"

#include <algorithm>

#include "format/checked.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {

Result<FlatTensor> flat_partition(std::span<const std::uint64_t> members, std::uint64_t dp, std::uint64_t rank) {
  std::uint64_t total = 0;
  for (const std::uint64_t elements : members) {
    CKPT_TRY(total, checked_add(total, elements));
  }
  CKPT_TRY(const cut::FlatGroup group, cut::flat_group({.element_count = total, .part_count = dp}));
  const Extent owned = group.owned(rank);
  FlatTensor out{.elements = group.part_elements, .padding = group.padding(rank)};
  std::uint64_t begin = 0;
  for (std::size_t m = 0; m < members.size() && begin < owned.end; ++m) {
    const std::uint64_t end = begin + members[m];
    const std::uint64_t from = std::max(begin, owned.begin);
    const std::uint64_t to = std::min(end, owned.end);
    if (from < to) out.pieces.push_back({m, {from - begin, to - begin}, from - owned.begin});
    begin = end;
  }
  return out;
}

Result<FlatTensor> parameter_partitions(std::span<const std::uint64_t> members, std::uint64_t dp, std::uint64_t rank) {
  FlatTensor out;
  for (std::size_t m = 0; m < members.size(); ++m) {
    CKPT_TRY(const cut::Partition part, cut::partition({.length = members[m], .part_count = dp}));
    const Extent owned = part.owned(rank);
    if (owned.size() != 0) out.pieces.push_back({m, owned, out.elements});
    CKPT_TRY(out.elements, checked_add(out.elements, part.part_elements));
  }
  return out;
}

}  // namespace ckpt::deepspeed
