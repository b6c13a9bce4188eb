#pragma once

#include <array>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::dcp {

/// Lays out a DCP checkpoint: the request's state dict (state_entries.hpp) in files of ranks (dcp_target.hpp).
Result<Skeleton> lay_out(const WriteRequest& request);

/// TargetOptions that it takes.
constexpr std::array<std::string_view, 2> kTargetOptions{"ranks", "placement"};

}  // namespace ckpt::dcp
