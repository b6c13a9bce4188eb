#include "format/files/extra_names.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "format/text/glob.hpp"
#include "format/text/relative_path.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 19> kExtraNames{
    "*.json",     "*.jinja", "*.model", "*.tiktoken", "merges.txt",       "vocab.txt", "*.yaml",
    "*.yml",      "*.py",    "LICENSE", "LICENSE.*",  "LICENCE",          "LICENCE.*", "NOTICE",
    "NOTICE.txt", "*.md",    "*.vocab", "config.pkl", "training_args.bin"};
// Of weights; and the scripts of DeepSpeed, which need its checkpoint.
constexpr std::array<std::string_view, 2> kScripts{"zero_to_fp32.py", "zero_to_torch.py"};
constexpr std::array<std::string_view, 5> kNoExtras{"*.index.json", kScripts[0], kScripts[1], "manifest.json",
                                                    "integrity.json"};
constexpr std::string_view kTrainerState = "trainer_state.json";
constexpr std::array<std::string_view, 3> kTrainingExtras{kTrainerState, "training_args.bin", "training_args.json"};
constexpr std::array<std::string_view, 7> kModelFolder{
    "config.json",           "adapter_config.json",      "generation_config.json", kTrainerState,
    "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"};

bool is_one_of(std::string_view name, std::span<const std::string_view> globs) {
  return std::ranges::any_of(globs, [&](std::string_view glob) { return matches_glob(name, glob); });
}

}  // namespace

bool is_extra_name(std::string_view path) {
  if (!stays_inside(path)) return false;
  if (const std::size_t slash = path.find('/'); slash != path.npos) {
    const std::string_view name = path.substr(slash + 1);
    return path.substr(0, slash) == kChatTemplatesFolder && name.find('/') == name.npos && name.ends_with(".jinja");
  }
  return is_one_of(path, kExtraNames) && !is_one_of(path, kNoExtras) && !path.starts_with('.');
}

bool is_training_extra(std::string_view path) {
  return std::ranges::find(kTrainingExtras, path) != kTrainingExtras.end();
}

bool is_checkpoint_script(std::string_view name) {
  return std::ranges::find(kScripts, name) != kScripts.end();
}

bool marks_trainer_folder(std::string_view name) {
  return name == kTrainerState;
}

bool marks_model_folder(std::string_view name) {
  return std::ranges::find(kModelFolder, name) != kModelFolder.end();
}

}  // namespace ckpt
