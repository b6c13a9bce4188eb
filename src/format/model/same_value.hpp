#pragma once

#include "format/model/value.hpp"

namespace ckpt {

/// Equal kind and content; floats by their bits. Compares without recursion.
bool same_value(const Value& a, const Value& b);

}  // namespace ckpt
