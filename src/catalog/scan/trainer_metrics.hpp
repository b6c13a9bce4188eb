#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt::catalog {

/// The file of Hugging Face's Trainer beside a checkpoint (transformers/trainer_callback.py, TrainerState).
inline constexpr std::string_view kTrainerState = "trainer_state.json";

/// The metrics that a trainer_state.json has for its checkpoint: of `log_history` those of an evaluation at its step
/// (`eval_loss`, ...), and the training loss that was logged last (`loss`). Speeds and times are no metrics. None if it
/// is no such file. By name.
std::vector<std::pair<std::string, double>> parse_trainer_metrics(std::string text);

/// Of the file in the directory of a checkpoint; none if it is missing, unreadable or over 64 MiB.
std::vector<std::pair<std::string, double>> read_trainer_metrics(Io& io, const std::string& checkpoint);

}  // namespace ckpt::catalog
