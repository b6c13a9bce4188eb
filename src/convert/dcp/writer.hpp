#pragma once

#include <array>
#include <string_view>

#include "convert/write_request.hpp"

namespace ckpt::dcp {

/// Lays out a DCP checkpoint: `__R_0.distcp`, one per rank that holds anything, and `.metadata`, which is written last.
/// Each item begins at a multiple of 64 bytes of its file, so that its elements are aligned; bytes between items are
/// zero. Objects go first, into the file of rank 0.
Result<Skeleton> lay_out(const WriteRequest& request);

/// TargetOptions that it takes.
constexpr std::array<std::string_view, 2> kTargetOptions{"ranks", "placement"};

/// storage_meta.save_id of our checkpoints begins with this, followed by the conversion's id.
constexpr std::string_view kSaveIdPrefix = "ckpt-";

}  // namespace ckpt::dcp
