#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "convert/format.hpp"
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
  std::vector<const char*> files;
};

class DeepSpeedWrapped : public testing::TestWithParam<Wrapper> {};

TEST_P(DeepSpeedWrapped, IsReadAsDeepSpeedAndItsOwnFilesAreNamed) {
  const Wrapper& wrapper = GetParam();
  const TempDir directory;
  const std::string root = directory.path() + "/" + wrapper.directory;
  fs::create_directories(root);
  fs::copy(golden_root("deepspeed/zero2_bf16_dp4") + "/global_step3", root + "/" + wrapper.tag,
           fs::copy_options::recursive);
  test::write_file(root + "/latest", wrapper.tag);
  for (const char* file : wrapper.files) test::write_file(root + "/" + file, "PK\x03\x04 of the trainer");
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto source = open_source(**io, root, {}, {.look_beside = true});
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ(source->map.format, "deepspeed");
  EXPECT_EQ(source->map.chosen, std::string("tag ") + wrapper.tag + " from 'latest'");
  EXPECT_EQ(source->map.meta.step, 3u);
  std::string told;
  for (const Finding& finding : source->map.findings) told += finding.text + "\n";
  for (const char* file : wrapper.files) EXPECT_NE(told.find(file), std::string::npos) << file << " in " << told;
}

INSTANTIATE_TEST_SUITE_P(
    Trainers, DeepSpeedWrapped,
    testing::Values(Wrapper{"HuggingFace",
                            "checkpoint-3",
                            "global_step3",
                            {"rng_state_0.pth", "scheduler.pt", "trainer_state.json", "training_args.bin"}},
                    Wrapper{"Accelerate", "state", "pytorch_model", {"random_states_1.pkl", "scheduler.bin"}},
                    Wrapper{"Lightning", "epoch=0-step=3.ckpt", "checkpoint", {}}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(DeepSpeedWrappedByATrainer, WeightsBesideTheTagMakeTheChoiceTheUsers) {
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
  // The directory above holds several such checkpoints: which one is meant is said, not guessed.
  const auto above = open_source(**io, directory.path(), {}, {});
  ASSERT_FALSE(above.has_value());
  EXPECT_NE(above.error().hint.find("checkpoint-3 looks like"), std::string::npos) << above.error().hint;
}

}  // namespace
}  // namespace ckpt
