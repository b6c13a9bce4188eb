#pragma once

#include <string_view>

namespace ckpt::deepspeed {

/// Whether "0.12.6+x" is before 0.`minor`; false for a version that is not known, or not 0.
bool is_before(std::string_view version, unsigned minor);

}  // namespace ckpt::deepspeed
