#pragma once

#include "convert/format.hpp"

/// One line a format, in the order of detection messages. The format's folder defines `Format NAME_format()`, and no
/// code outside it knows the name. Those in `recognised_only/` are recognised, and not read.
#define CKPT_FORMATS(FORMAT)                                                             \
  FORMAT(universal)           /* universal/: our own sharded format */                   \
  FORMAT(safetensors)         /* safetensors/: files, Hugging Face, DCP-sharded */       \
  FORMAT(deepspeed)           /* deepspeed/ */                                           \
  FORMAT(dcp)                 /* dcp/: torch.distributed.checkpoint */                   \
  FORMAT(torch)               /* torch/: torch.save files */                             \
  FORMAT(hdf5)                /* hdf5/ */                                                \
  FORMAT(megatron)            /* megatron/: torch_dist */                                \
  FORMAT(megatron_legacy)     /* megatron/: files of ranks */                            \
  FORMAT(orbax)               /* recognised_only/ */                                     \
  FORMAT(deepspeed_universal) /* deepspeed/universal/: what ds_to_universal.py writes */ \
  FORMAT(gguf)                /* recognised_only/ */                                     \
  FORMAT(numpy)               /* numpy/: written in parts by `export`, not read */       \
  FORMAT(onnx)                /* recognised_only/ */                                     \
  FORMAT(tensorflow)          /* recognised_only/ */                                     \
  FORMAT(torchscript)         /* recognised_only/ */

namespace ckpt {

#define CKPT_DECLARE_FORMAT(NAME) Format NAME##_format();
CKPT_FORMATS(CKPT_DECLARE_FORMAT)
#undef CKPT_DECLARE_FORMAT

}  // namespace ckpt
