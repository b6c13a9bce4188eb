#pragma once

#include <string>

#include "convert/format.hpp"
#include "convert/torch/written_state.hpp"
#include "engine/run/plan.hpp"
#include "format/result.hpp"

namespace ckpt::torch {

/// A torch.save file of a state. A tensor has a storage of its own, dense, its values cast as the request says; names
/// of one tensor share it. Tensors that view one storage of the source go on doing so: the storage is copied as it
/// stands, where several views or one that fills it need it, and nothing is cast.
///
/// path    below the target's root, "" = the root is the file
/// errors  unsupported: an element type that torch lacks
Result<TargetFile> object_file(const WriteRequest& request, const WrittenState& state, std::string path);

}  // namespace ckpt::torch
