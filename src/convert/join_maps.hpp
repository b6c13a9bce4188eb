#pragma once

#include <string>

#include "format/model/model.hpp"

namespace ckpt {

/// Appends the contents of another map: tensors, tied names, objects, files and findings. Facts
/// about the checkpoint (format, variant, step, framework) are kept, and taken from `more` only if
/// unknown.
///
/// more    its files are below `folder` of the map's root ("" = the root); no extras, no hashes
/// errors  ambiguous: a tensor or a tied name exists in both
Result<> join_maps(Map& map, Map more, const std::string& folder, const std::string& root);

}  // namespace ckpt
