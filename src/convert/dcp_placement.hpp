#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"
#include "format/universal/mesh_layout.hpp"

namespace ckpt::dcp {

/// How tensors are cut among the ranks of a DCP checkpoint, in DTensor's placements: one word for each dimension of the
/// device mesh, outermost first. "S0" = Shard(0), "R" = Replicate(); "R:2,S0:4" is HSDP on a 2 x 4 mesh. One size may
/// be omitted; it follows from the number of ranks. A dimension that several words shard is cut by each in turn, the
/// outermost first.
/// source  torch/distributed/tensor/placement_types.py: Shard (torch.chunk: ceil(n / parts) rows, trailing ranks may
///         hold nothing), Replicate
class Placements {
 public:
  /// rules  pattern of names and text, in the order given: the first that matches a name decides. A name that none
  ///        matches is cut as FSDP2 cuts it, "S0".
  /// errors  usage, with the text: not placements; sizes whose product is not `ranks`
  static Result<Placements> parse(const std::vector<std::pair<std::string, std::string>>& rules, std::uint64_t ranks);

  /// The layout for one tensor. A 0-dimensional tensor is always replicated.
  /// errors  usage, with the tensor: a dimension that it does not have
  Result<const universal::Layout*> of(std::string_view name, const Shape& shape) const;
  /// Patterns that no name asked for has matched.
  std::vector<std::string> unused() const;

 private:
  struct Rule {
    std::string pattern;
    std::string text;
    universal::Layout layout;
    mutable bool used = false;
  };
  std::vector<Rule> rules_{};
  universal::Layout replicated_{};
  universal::Layout default_{};
};

}  // namespace ckpt::dcp
