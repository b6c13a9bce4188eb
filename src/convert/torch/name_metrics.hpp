#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::torch {

/// The metrics in the name of a file of Lightning (lightning/pytorch/callbacks/model_checkpoint.py):
/// "epoch=3-step=400-val_loss=1.25.ckpt" has val_loss. Epoch and step are none.
std::vector<std::pair<std::string, double>> metrics_in_name(std::string_view name);

}  // namespace ckpt::torch
