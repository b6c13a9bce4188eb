#pragma once

#include <string>
#include <utility>
#include <vector>

#include "convert/state_archive.hpp"
#include "format/model/value.hpp"

namespace ckpt::deepspeed {

/// What a universal folder says beside a parameter's tensor, so that DeepSpeed can cut it for its tensor-parallel ranks:
/// "cat_dim", "param_n_sub_params", "sub_param_shape", by the patterns of universal_checkpoint_info. Nothing for what
/// all ranks have alike.
///
/// info     universal_checkpoint_info, or null: everything is cut along dimension 0
/// shape    of the whole parameter
/// errors   unsupported: a pattern of a form that is not understood
/// source   deepspeed/checkpoint/ds_to_universal.py: merge_tp_slices
Result<std::vector<std::pair<std::string, ValuePtr>>> slice_marks(const Value* info, const std::string& name,
                                                                  const Shape& shape);

}  // namespace ckpt::deepspeed
