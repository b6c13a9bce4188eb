#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convert/dcp_entries.hpp"
#include "convert/write_request.hpp"
#include "format/torch/dcp_metadata_build.hpp"

namespace ckpt::dcp {

/// How a target stores a state dict as torch.distributed.checkpoint does.
struct DcpForm {
  std::string folder{};  ///< of the target that holds it; "" = the target itself
  std::uint64_t ranks = 1;
  Keys keys = Keys::nested;
};

/// The ranks of a target: --ranks, else those of the source.
std::uint64_t ranks_of(const WriteRequest& request);

/// Lays out `__R_0.distcp`, one per rank that holds anything, and `.metadata`, which is written last. Each item begins at
/// a multiple of 64 bytes of its file, so that its elements are aligned; bytes between items are zero. Objects go first,
/// into the file of rank 0. Tensors are cut as WriteRequest::options says, else as FSDP2 cuts them.
///
/// errors  usage: too many ranks; placements that do not fit
Result<Skeleton> lay_out_entries(const WriteRequest& request, StateEntries state, const DcpForm& form);

/// storage_meta.save_id of our checkpoints begins with this, followed by the conversion's id.
constexpr std::string_view kSaveIdPrefix = "ckpt-";

}  // namespace ckpt::dcp
