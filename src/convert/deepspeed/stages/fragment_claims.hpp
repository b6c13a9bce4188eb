#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/stages/flat_groups.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {

/// One flat group as param_shapes has it, beside what every rank's file says of itself.
struct FragmentCheck {
  const GroupShapes& shapes;
  const std::vector<std::uint64_t>& begins;  ///< of the shapes, in the flat group
  const cut::FlatGroup& cut;
  const GroupRanks& ranks;
};

/// Compares each rank's param_slice_mappings with the fragments that its part must hold: a file that another rank wrote
/// describes another part. Ranks that say nothing (older releases) pass.
///
/// returns  empty; or what does not fit although no other rank explains it
/// errors   corrupt: the file of one rank is that of another
/// source   deepspeed/utils/tensor_fragment.py: get_hp_fragment_mapping
Result<std::string> check_fragments(const FragmentCheck& check);

}  // namespace ckpt::deepspeed
