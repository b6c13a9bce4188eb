#pragma once

#include <string>
#include <string_view>

#include "format/model/dtype.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The name of a floating-point dtype in a config.json; empty for other dtypes.
std::string_view config_dtype_name(Dtype dtype);

/// The text of a transformers config.json with another dtype of the weights: `torch_dtype` or `dtype` of the outermost
/// object, and of objects named `*_config` in it (except `quantization_config`), if they name a floating-point dtype.
/// Everything else is unchanged, byte for byte.
///
/// dtype    F32, F16, BF16 or F64; for any other the text is unchanged
/// errors   corrupt: not JSON
/// source   transformers configuration_utils.py: PreTrainedConfig.to_dict, dict_dtype_to_str
Result<std::string> with_config_dtype(std::string_view text, Dtype dtype);

}  // namespace ckpt
