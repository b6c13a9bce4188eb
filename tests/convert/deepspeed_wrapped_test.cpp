#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/open_source.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

/// What a trainer puts around a DeepSpeed save directory.
struct Wrapper {
  const char* name;
  const char* directory;
  const char* tag;
  std::vector<std::pair<const char*, const char*>> state;  // file, and the golden one that it is
  std::vector<const char*> settings;
};

/// The file of the golden folder, whose rank is 0 or not said.
std::string genuine(std::string_view file) {
  if (file == "rng_state_0.pth") return "rng_state.pth";
  return file == "random_states_1.pkl" ? "random_states_0.pkl" : std::string(file);
}

class DeepSpeedWrapped : public testing::TestWithParam<Wrapper> {};

TEST_P(DeepSpeedWrapped, IsReadAsDeepSpeedWithTheStateThatTheTrainerAdds) {
  const Wrapper& wrapper = GetParam();
  const TempDir directory;
  const std::string root = directory.path() + "/" + wrapper.directory;
  fs::create_directories(root);
  fs::copy(golden_root("deepspeed/zero2_bf16_dp4") + "/global_step3", root + "/" + wrapper.tag,
           fs::copy_options::recursive);
  test::write_file(root + "/latest", wrapper.tag);
  for (const auto& [file, golden] : wrapper.state)
    fs::copy(golden_root("folders/" + std::string(golden)) + "/" + genuine(file), root + "/" + file);
  for (const char* file : wrapper.settings) test::write_file(root + "/" + file, "{}");
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto source = open_source(**io, root, {}, {.find_beside = true});
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ(source->map.format, "deepspeed");
  EXPECT_EQ(source->map.chosen, std::string("tag ") + wrapper.tag + " from 'latest'");
  EXPECT_EQ(source->map.meta.step, 3u);
  for (const auto& [file, golden] : wrapper.state) {
    const std::string name = file;
    EXPECT_TRUE(std::ranges::any_of(source->map.files, [&](const MapFile& one) { return one.path == name; })) << name;
    const std::string prefix = name.substr(0, name.find('.')) + ".";
    EXPECT_TRUE(std::ranges::any_of(source->map.objects, [&](const NamedObject& o) {
      return o.name.starts_with(prefix);
    })) << prefix;
  }
  for (const char* file : wrapper.settings)
    EXPECT_NE(std::ranges::find(source->settings, file), source->settings.end()) << file;
  EXPECT_TRUE(
      std::ranges::none_of(source->map.findings, [](const Finding& f) { return f.skipped != Skipped::nothing; }));
}

INSTANTIATE_TEST_SUITE_P(Trainers, DeepSpeedWrapped,
                         testing::Values(Wrapper{"HuggingFace",
                                                 "checkpoint-3",
                                                 "global_step3",
                                                 {{"rng_state_0.pth", "hf_trainer"}, {"scheduler.pt", "hf_trainer"}},
                                                 {"trainer_state.json", "training_args.bin"}},
                                         Wrapper{
                                             "Accelerate",
                                             "state",
                                             "pytorch_model",
                                             {{"random_states_1.pkl", "accelerate"}, {"scheduler.bin", "accelerate"}},
                                             {}},
                                         Wrapper{"Lightning", "epoch=0-step=3.ckpt", "checkpoint", {}, {}}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(DeepSpeedWrappedByATrainer, WeightsBesideTheTagAreACopyInATrainersFolderAndElseTheUsersChoice) {
  const TempDir directory;
  const std::string root = directory.path() + "/checkpoint-3";
  fs::copy(golden_root("deepspeed/zero2_bf16_dp4"), root, fs::copy_options::recursive);
  fs::copy(golden_root("safetensors/gpt2_single_file") + "/model.safetensors", root + "/model.safetensors");
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto either = open_source(**io, root, {}, {});
  ASSERT_FALSE(either.has_value());
  EXPECT_EQ(either.error().code, Errc::ambiguous);
  EXPECT_NE(either.error().hint.find("--from safetensors or --from deepspeed"), std::string::npos)
      << either.error().hint;
  const auto state = open_source(**io, root, "deepspeed", {});
  ASSERT_TRUE(state.has_value()) << state.error().message;
  // In the folder of a trainer they are a copy of the weights.
  test::write_file(root + "/trainer_state.json", "{}");
  const auto whole = open_source(**io, root, {}, {.find_beside = true});
  ASSERT_TRUE(whole.has_value()) << whole.error().message;
  EXPECT_EQ(whole->map.format, "deepspeed");
  EXPECT_TRUE(std::ranges::any_of(whole->map.findings, [](const Finding& f) {
    return f.severity == Severity::note && f.text.starts_with("model.safetensors: the trainer's copy of the weights");
  }));
  EXPECT_TRUE(
      std::ranges::none_of(whole->map.findings, [](const Finding& f) { return f.skipped != Skipped::nothing; }));
  fs::remove(root + "/trainer_state.json");
  // The directory above holds several such checkpoints: which one is meant is said, not guessed.
  const auto above = open_source(**io, directory.path(), {}, {});
  ASSERT_FALSE(above.has_value());
  EXPECT_NE(above.error().hint.find("checkpoint-3 looks like"), std::string::npos) << above.error().hint;
}

}  // namespace
}  // namespace ckpt
