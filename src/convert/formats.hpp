#pragma once

#include "convert/format.hpp"

namespace ckpt {

// Each is defined in the folder of its format.
Format universal_format();            ///< universal/: our own sharded format
Format safetensors_format();          ///< safetensors/: files, Hugging Face directories, DCP-sharded directories
Format deepspeed_format();            ///< deepspeed/
Format deepspeed_universal_format();  ///< deepspeed/: what ds_to_universal.py writes
Format dcp_format();                  ///< dcp/: torch.distributed.checkpoint
Format torch_format();                ///< torch/: torch.save files
Format hdf5_format();                 ///< hdf5/: written here, not yet read
Format numpy_format();                ///< numpy/: written in parts by `load`, not read
// named/: recognised, not yet read
Format megatron_format();
Format orbax_format();
Format gguf_format();

}  // namespace ckpt
