#pragma once

#include <string>
#include <string_view>

#include "format/model/dtype.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The text of a transformers config.json with another dtype of the weights: `torch_dtype` or `dtype` of the outermost
/// object, and of those named `*_config` in it (but for `quantization_config`), where they name a floating-point dtype.
/// All else stays as it is, byte for byte.
///
/// dtype    F32, F16, BF16 or F64; of any other the text stays as it is
/// errors   corrupt: not JSON
/// source   transformers configuration_utils.py: PreTrainedConfig.to_dict, dict_dtype_to_str
Result<std::string> with_config_dtype(std::string_view text, Dtype dtype);

}  // namespace ckpt
