#pragma once

#include <span>
#include <string>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/universal/references.hpp"

namespace ckpt::universal {

/// Adds to a map the files that a virtual checkpoint at `root` refers to. Each is compared with its record; nothing
/// else of it is read. `tell`: what is wrong with one becomes a finding.
/// errors  incomplete: one is missing; changed: one is not a regular file, or not the recorded one
Result<> add_referenced_files(Io& io, const std::string& root, std::span<const ReferencedSource> sources,
                              bool report_references, Map& map);

}  // namespace ckpt::universal
