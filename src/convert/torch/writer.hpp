#pragma once

#include "convert/write_request.hpp"
#include "format/result.hpp"

namespace ckpt::torch {

/// One file if the target has a suffix of torch files. Else a directory: weights in the set
/// pytorch_model-0000K-of-0000N.bin with pytorch_model.bin.index.json (one file: pytorch_model.bin), divided as by
/// transformers, and the trainer's state (trainer_folder.hpp).
/// errors  unsupported: an element type that torch lacks; refused: as WholeObject
Result<Skeleton> lay_out(const WriteRequest& request);

/// FormatWriter::lay_out_beside: a trainer's schedulers, random states, samplers and the like.
Result<Skeleton> lay_out_beside(WriteRequest& request);

}  // namespace ckpt::torch
