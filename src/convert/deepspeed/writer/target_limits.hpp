#pragma once

#include <string>

#include "convert/deepspeed/writer/training_target.hpp"

/// Names and types that no DeepSpeed target can hold, whatever its stage makes of the rest.
namespace ckpt::deepspeed {

/// DeepSpeed reads the tag from `latest` without the white space around it (engine.load_checkpoint), and joins it to
/// the directory that holds `latest` itself.
///
/// errors  usage
Result<> check_tag(const std::string& target, const std::string& tag);

/// source  torch/nn/modules/module.py: register_parameter and add_module refuse empty names
/// errors  unsupported: a name that no module has
Result<> check_names(const WriteRequest& request, const TrainingState& state);

/// Tensors in flat files have one number an element, and torch's types.
///
/// errors  unsupported, with the tensor
Result<> check_types(const WriteRequest& request, const TrainingTarget& target);

}  // namespace ckpt::deepspeed
