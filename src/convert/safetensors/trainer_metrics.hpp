#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::safetensors {

/// The file of Hugging Face's Trainer next to its weights (transformers/trainer_callback.py, TrainerState).
inline constexpr std::string_view kTrainerState = "trainer_state.json";

/// The metrics that a trainer_state.json has for its checkpoint: of `log_history` those of an evaluation at its step
/// (`eval_loss`, ...), and the training loss that was logged last (`loss`). Speeds and times are no metrics. None if it
/// is no such file. By name.
std::vector<std::pair<std::string, double>> parse_trainer_metrics(std::string_view text);

}  // namespace ckpt::safetensors
