#pragma once

#include "format/model/model.hpp"
#include "format/model/value.hpp"

namespace ckpt::megatron {

/// Fills step, world size and mesh from the state that all ranks of a run have in common.
///
/// common  a dict with `iteration` and `args`, an argparse.Namespace; anything else is left out
/// source  megatron/training/checkpointing.py: generate_state_dict
void read_run_arguments(const Value& common, Meta& meta);

/// The value of a text key of a dict, or of an object whose state is a dict; null if there is none.
const Value* member(const Value& value, std::string_view key);

}  // namespace ckpt::megatron
