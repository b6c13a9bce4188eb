#pragma once

#include <string_view>

#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::universal {

/// The blob in which the Python package keeps the tree of containers, plain values and tensors that it saved.
inline constexpr std::string_view kPythonTree = "python.json";

/// The tree. Its tensors have the names of the checkpoint's tensors, or of names tied to them. The source of the form is
/// python/ckpt/_tree.py.
///
/// errors  corrupt, with the offset in the blob; newer: of a later version
Result<ValuePtr> parse_python_tree(std::string_view text);

}  // namespace ckpt::universal
