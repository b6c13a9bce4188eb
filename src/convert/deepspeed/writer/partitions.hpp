#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

/// Which elements of which parameters one rank's flat tensor holds: numbers only, the cut rules are format/model/cut.
namespace ckpt::deepspeed {

/// A run of one parameter's elements in a flat tensor.
struct FlatPiece {
  std::size_t member = 0;    ///< index into the group
  Extent elements{};         ///< of the parameter, row-major
  std::uint64_t offset = 0;  ///< elements from the begin of the rank's flat tensor
  bool operator==(const FlatPiece&) const = default;
};

/// One rank's flat tensor of a group; elements that no piece covers are padding.
struct FlatTensor {
  std::uint64_t elements = 0;  ///< with the padding
  std::uint64_t padding = 0;   ///< elements at its end that belong to no parameter (stages 1 and 2)
  std::vector<FlatPiece> pieces{};
};

/// Stages 1 and 2: the group's parameters end to end, padded to a multiple of 2 * dp, in dp equal parts. Parts cut
/// through parameters. A group without elements gives empty parts.
///
/// members  elements of the group's parameters, in order
/// errors   corrupt: the sum passes 64 bits
Result<FlatTensor> flat_partition(std::span<const std::uint64_t> members, std::uint64_t dp, std::uint64_t rank);

/// Stage 3: every parameter cut separately into parts of ceil(n / dp), the parts of one rank end to end, each with its
/// padding.
Result<FlatTensor> parameter_partitions(std::span<const std::uint64_t> members, std::uint64_t dp, std::uint64_t rank);

}  // namespace ckpt::deepspeed
