#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/stages/flat_groups.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {

/// One flat group as in param_shapes, with the facts in every rank's file.
struct FragmentCheck {
  const GroupShapes& shapes;
  const std::vector<std::uint64_t>& begins;  ///< of the shapes, in the flat group
  const cut::FlatGroup& cut;
  const GroupRanks& ranks;
};

/// Compares each rank's param_slice_mappings with the fragments that its part must hold: a file that another rank wrote
/// describes another part. Ranks without them (older releases) pass.
///
/// returns  empty; or a mismatch that no other rank explains
/// errors   corrupt: the file of one rank belongs to another
/// source   deepspeed/utils/tensor_fragment.py: get_hp_fragment_mapping
Result<std::string> check_fragments(const FragmentCheck& check);

}  // namespace ckpt::deepspeed
