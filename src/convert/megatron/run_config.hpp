#pragma once

#include <optional>

#include "format/model/value.hpp"

namespace ckpt::megatron {

/// The arguments of Megatron-LM, an argparse.Namespace, that describe the model in `run_config.yaml` of Megatron-Bridge:
/// its runs have no arguments. Nothing if the document describes no model.
///
/// document  of run_config.yaml
/// source    megatron/bridge/training/utils/checkpoint_utils.py; megatron/core/transformer/transformer_config.py
std::optional<Value> arguments_of(const Value& document);

}  // namespace ckpt::megatron
