#pragma once

#include <string_view>

#include "format/model/value.hpp"

/// Members of a dict by their text keys.
namespace ckpt::megatron {

/// Null: there is none.
ValuePtr get(const Dict& dict, std::string_view name);
/// In the place of the one that is there, else behind all others.
void set(Dict& dict, std::string_view name, ValuePtr value);
void remove(Dict& dict, std::string_view name);

}  // namespace ckpt::megatron
