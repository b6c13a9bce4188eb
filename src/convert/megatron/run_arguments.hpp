#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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
/// An argument that counts something; nothing if it is not set, or not positive.
std::optional<std::uint64_t> count_argument(const Value& args, std::string_view name);
/// A switch among the arguments: whether it is on.
bool is_set(const Value& args, std::string_view name);

}  // namespace ckpt::megatron
