#pragma once

#include <string_view>

namespace ckpt::universal {

/// Whether a save puts something of this path into the directory of a checkpoint: FORMAT.md, section 2, and
/// marks/save-statistics.json. `path`  relative to that directory; of a folder with a slash at its end
bool is_own_name(std::string_view path);

}  // namespace ckpt::universal
