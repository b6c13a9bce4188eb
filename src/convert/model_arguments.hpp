#pragma once

#include "format/model/model.hpp"
#include "format/naming/settings.hpp"

namespace ckpt {

inline constexpr std::string_view kArguments = "args";  ///< the object that holds them

/// The arguments of a Megatron-LM run that a map has: numbers, texts, truth values, and lists of numbers. Empty if it
/// has none. The vocabulary is the one without padding.
naming::Settings model_arguments(const Map& map);

/// The same as an object, an argparse.Namespace.
Value as_arguments(const naming::Settings& settings);
/// One with these attributes.
Value as_namespace(Dict attributes);

}  // namespace ckpt
