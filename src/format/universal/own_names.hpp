#pragma once

#include <array>
#include <string_view>

namespace ckpt::universal {

/// The kinds of marks: FORMAT.md, section 11. In the order of catalog::Mark::Kind.
inline constexpr std::array<std::string_view, 7> kMarkKinds{"pin",      "tag",      "note",     "metric",
                                                            "verified", "restored", "reference"};

/// All files of that class, and no others.
inline constexpr std::string_view kOptimizerFolder = "shards/optim";

/// Whether ckpt puts something of this path into the directory of a checkpoint: FORMAT.md, sections 2 and 11, and
/// marks/save-statistics.json. `path`  relative to that directory; of a folder with a slash at its end
bool is_own_name(std::string_view path);

}  // namespace ckpt::universal
