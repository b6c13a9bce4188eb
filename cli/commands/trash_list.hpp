#pragma once

#include "cli/report/say.hpp"

namespace ckpt::cli {

/// `ckpt list --trash`: what the trash holds, who deleted it, and until when it can be restored.
Answer list_trash(Context& context);

}  // namespace ckpt::cli
