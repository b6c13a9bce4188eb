#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

/// The rules by which frameworks cut tensors among ranks: arithmetic on numbers, no names, no files. Part numbers run
/// from 0; a part that gets nothing has an empty extent at the end of the range.
namespace ckpt::cut {

/// A range of `length` things (rows of a dimension, elements of a flat tensor) for `part_count` owners, at least 1.
struct Split {
  std::uint64_t length = 0;
  std::uint64_t part_count = 1;
};

/// Parts of ceil(length / part_count); later ones are shorter or empty. The inverse is part_of_chunk.
/// source   torch.chunk and DTensor's Shard (torch/distributed/tensor/placement_types.py, Shard._split_tensor)
Extent chunk(const Split& split, std::uint64_t part);
/// The part that owns index `at` < length.
std::uint64_t part_of_chunk(const Split& split, std::uint64_t at);

/// Parts that differ by at most one; the first length % part_count are the longer ones. The inverse is part_of_even.
/// source   torch.tensor_split, numpy.array_split
Extent even(const Split& split, std::uint64_t part);
std::uint64_t part_of_even(const Split& split, std::uint64_t at);

/// One flat tensor, made of parameters laid end to end, then padded at its end so that `part_count` ranks get equal
/// parts: DeepSpeed ZeRO stages 1 and 2, one per parameter group. Parts ignore the borders of parameters.
/// source   deepspeed/runtime/zero/stage_1_and_2.py: DeepSpeedZeroOptimizer.__init__ (alignment, groups_padding),
///          get_data_parallel_partitions; before 2021-09 the alignment was part_count alone
struct FlatGroup {
  std::uint64_t element_count = 0;  ///< without the padding
  std::uint64_t part_count = 1;
  std::uint64_t part_elements = 0;  ///< of each part, padding included

  /// What rank `part` holds of [0, element_count).
  Extent owned(std::uint64_t part) const;
  /// Elements of padding at the end of this part: several trailing parts may be padding, completely or in part.
  std::uint64_t padding(std::uint64_t part) const { return part_elements - owned(part).size(); }
  /// The part that holds element `at` < element_count.
  std::uint64_t part_of(std::uint64_t at) const { return at / part_elements; }
  bool operator==(const FlatGroup&) const = default;
};
struct FlatGroupOptions {
  std::uint64_t element_count = 0;
  std::uint64_t part_count = 1;    ///< at least 1
  std::uint64_t align_factor = 2;  ///< the group is padded to a multiple of align_factor * part_count
};
/// errors   corrupt: no parts, or sizes that pass 64 bits
Result<FlatGroup> flat_group(const FlatGroupOptions& options);

/// One parameter, flattened and cut separately into `part_count` parts of ceil(n / part_count), the last ones padded:
/// DeepSpeed ZeRO stage 3. A parameter with fewer elements than ranks leaves ranks that hold padding only.
/// source   deepspeed/runtime/zero/partition_parameters.py: Init._partition_numel, _partition_param
struct Partition {
  std::uint64_t element_count = 0;
  std::uint64_t part_count = 1;
  std::uint64_t part_elements = 0;  ///< size of the parameter in every rank's flat tensor, padding included

  Extent owned(std::uint64_t part) const;
  std::uint64_t part_of(std::uint64_t at) const { return at / part_elements; }
  bool operator==(const Partition&) const = default;
};
/// errors   corrupt: no parts
Result<Partition> partition(const Split& split);

/// The order in which DeepSpeed's round_robin_gradients lays the parameters of a flat group out: number i belongs to
/// bucket i mod `part_count`, and buckets follow each other.
/// returns  for each place in the flat order the number of its parameter
/// source   deepspeed/runtime/zero/stage_1_and_2.py: _round_robin_reorder
std::vector<std::size_t> round_robin(std::size_t parameter_count, std::uint64_t part_count);

/// The ends of the stage-3 sub-groups of one parameter group: indices one past the last parameter of each. Whole
/// parameters are added until their parts reach `sub_group_elements`; a group that fits stays one sub-group.
/// source   deepspeed/runtime/zero/stage3.py: _create_fp16_sub_groups
struct SubGroupOptions {
  std::span<const std::uint64_t> part_elements;  ///< Partition::part_elements of the group's parameters, in order
  std::uint64_t sub_group_elements = 0;          ///< configuration key sub_group_size: elements per rank
};
/// errors   corrupt: the sum passes 64 bits
Result<std::vector<std::size_t>> sub_groups(const SubGroupOptions& options);

}  // namespace ckpt::cut
