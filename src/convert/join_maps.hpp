#pragma once

#include <string>

#include "format/model/model.hpp"

namespace ckpt {

/// Adds what another map holds: tensors, tied names, objects, files and findings, after those that are there. What is
/// known of the checkpoint (its format, variant, step, framework) stays, and is taken from `more` where it is not
/// known.
///
/// more    its files are below `folder` of the map's root ("" = the root); no extras, no hashes
/// errors  ambiguous: a tensor or a tied name of both has one name
Result<> join_maps(Map& map, Map more, const std::string& folder, const std::string& root);

}  // namespace ckpt
