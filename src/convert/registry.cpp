#include "convert/format.hpp"

#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

// One line a format. Nothing else in the project knows their names.
const std::array kFormats{
    universal_format(), safetensors_format(), deepspeed_format(),
    dcp_format(),       torch_format(),       hdf5_format(),
    megatron_format(),  orbax_format(),       deepspeed_universal_format(),
    gguf_format(),      numpy_format(),
};

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

}  // namespace ckpt
