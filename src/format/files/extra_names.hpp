#pragma once

#include <string_view>

/// Small files next to the weights that a program needs to load them: config.json, the tokenizer's files, chat
/// templates, processor configurations, remote code, licence.
namespace ckpt {

/// Whether a path relative to a checkpoint's folder is such a file. They are in the folder itself; chat templates also
/// in `additional_chat_templates`.
/// source   transformers: save_pretrained of configurations, tokenizers, processors and models; peft: save_pretrained
bool is_extra_name(std::string_view path);

/// Whether an extra belongs to the training and not to the model: trainer_state.json, training_args.bin.
bool is_training_extra(std::string_view path);

/// Whether a file is a script that a framework writes into a checkpoint to convert it.
bool is_checkpoint_script(std::string_view name);

/// Whether a file of this name marks its folder as a checkpoint of the Hugging Face Trainer.
/// source   transformers: trainer.py, TRAINER_STATE_NAME
bool marks_trainer_folder(std::string_view name);

/// Whether a file of this name marks its folder as a model's, so that its other extras belong to the model.
bool marks_model_folder(std::string_view name);

/// The folder of chat templates beyond the default one.
constexpr std::string_view kChatTemplatesFolder = "additional_chat_templates";

}  // namespace ckpt
