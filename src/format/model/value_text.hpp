#pragma once

#include <cstddef>
#include <string>

#include "format/model/value.hpp"

namespace ckpt {

/// A value as Python would print it, for people: `0.001`, `'adam'`, `[0.9, 0.95]`, `{'a': 1}`, `<module.Class>`,
/// `<tensor NAME>`, `<12 bytes>`. At most about `limit` bytes; what is left out becomes "...". Text is not escaped
/// beyond quotes: it may hold control characters.
std::string value_text(const Value& value, std::size_t limit);

}  // namespace ckpt
