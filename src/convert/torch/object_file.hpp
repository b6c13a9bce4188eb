#pragma once

#include <string>

#include "convert/torch/written_state.hpp"
#include "convert/write_request.hpp"
#include "engine/run/plan.hpp"
#include "format/result.hpp"

namespace ckpt::torch {

/// A torch.save file of a state. A tensor has its own dense storage, its values cast as requested; tied names share it.
/// Tensors that view one storage of the source continue to share it: the storage is copied whole if several views, or
/// one that fills it, need it, and nothing is cast.
///
/// path    below the target's root, "" = the root is the file
/// errors  unsupported: an element type that torch lacks
Result<TargetFile> object_file(const WriteRequest& request, const WrittenState& state, std::string path);

}  // namespace ckpt::torch
