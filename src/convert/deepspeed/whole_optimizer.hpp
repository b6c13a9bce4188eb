#pragma once

#include <vector>

#include "convert/deepspeed/map_builder.hpp"
#include "convert/deepspeed/model_states.hpp"
#include "convert/deepspeed/objects.hpp"
#include "convert/deepspeed/state_file.hpp"

namespace ckpt::deepspeed {

/// Stage 0: the optimizer inside the model file. It stores no names: they are found by `match_parameters` among the
/// weights of `module` that are neither buffers nor ties; where they cannot be known, slots keep their index
/// (`optimizer.state.3.exp_avg`) and a finding says so.
///
/// fp32   a torch state dict; the weights are their own masters, and are listed as such too
/// 16 bit `fp32_groups` (a tensor each) or `fp32_groups_flat` (one tensor a group, no alignment) beside the state dict
/// An optimizer of any other form is kept as an object, its tensors under their paths.
///
/// io      reads a few elements of weights and masters where shapes do not decide
/// source  deepspeed/runtime/fp16/unfused_optimizer.py, fused_optimizer.py: state_dict
Result<> place_whole_optimizer(MapBuilder& builder, const ModelStates& model, const StateFile& file,
                               ObjectReader& objects, std::vector<NamedObject>& out);

}  // namespace ckpt::deepspeed
