#pragma once

#include <string_view>

#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A YAML document as a value: mappings are dicts, sequences lists. Plain scalars are null, truth values and numbers as in
/// YAML's core schema, and all other scalars text, whatever their tags. An alias is null: nothing is expanded.
///
/// errors  corrupt, with the line: no such document, or one that nests deeper than 64 levels
Result<Value> parse_yaml(std::string_view text);

}  // namespace ckpt
