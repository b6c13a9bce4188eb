#pragma once

#include <string>

#include "convert/deepspeed/files/detect.hpp"
#include "convert/read_options.hpp"
#include "format/model/model.hpp"

namespace ckpt::deepspeed {

/// Opens a tag that several tensor- or pipeline-parallel ranks wrote: pipelines with
/// ZeRO stage 1 or 2 or BF16_Optimizer, tensor-parallel ranks alone with any stage.
/// Slices of tensor-parallel ranks become boxes of the full tensors by
/// universal_checkpoint_info (slice_rules.hpp). Weights of a pipeline are in files per
/// layer, named `LAYER.name`; those of a tied layer are `tied_modules.KEY.name`, as in
/// the optimizer. A tied layer on several stages is one tensor with copies. Without ZeRO
/// a pipeline in bf16 has files of BF16_Optimizer, which name their fragments; in fp32
/// and fp16 the sizes of the layers must determine which stage trains which
/// (pipeline_stages.hpp).
///
/// With ReadOptions::ranks_apart nothing is joined, no rule is needed, and the layout of the ranks is filled in.
///
/// errors   incomplete: files are missing; unsupported: a slice that no rule places, a pipeline whose stages cannot be
///          distinguished, experts; corrupt: files that contradict each other
/// source   deepspeed/runtime/pipe/module.py: save_state_dict, ckpt_layer_path
Result<Map> read_model_parallel(Io& io, const std::string& root, const Tag& tag, const ReadOptions& options);

}  // namespace ckpt::deepspeed
