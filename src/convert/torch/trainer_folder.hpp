#pragma once

#include <set>
#include <string>
#include <vector>

#include "convert/torch/written_state.hpp"
#include "convert/write_request.hpp"

/// The state of a trainer next to the weights in a folder, as Hugging Face's Trainer and Accelerate expect it.
namespace ckpt::torch {

/// The files of the source's trainer that are requested completely: they are copied unchanged. `keys`: theirs
/// (trainer_key); values with these keys are written.
Result<std::vector<TargetFile>> copied_trainer_files(const WriteRequest& request, std::set<std::string>& keys);

/// An object and the file that holds it.
struct TrainerFile {
  std::string path{};
  WrittenState state{};
};
/// Whether the source is a folder of Accelerate: it holds random states under Accelerate's name.
bool is_accelerates(const WriteRequest& request);

/// Whether trainers keep a value in a file next to weights and optimizer, whatever framework writes these.
bool is_kept_beside(const std::string& name, const Path& path);

/// Divides state into files: optimizer.pt, scheduler.pt, scaler.pt, rng_state.pth, or those of Accelerate
/// (optimizer.bin, random_states_0.pkl), and all else in training_state.pt. An optimizer keyed by names is numbered,
/// as torch.optim's own state dict is.
///
/// source  transformers trainer.py: OPTIMIZER_NAME, SCHEDULER_NAME; accelerate utils/constants.py
std::vector<TrainerFile> divide_state(WrittenState state, bool is_accelerate);

}  // namespace ckpt::torch
