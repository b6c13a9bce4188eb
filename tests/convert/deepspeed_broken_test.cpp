#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using test::TorchPatch;
using namespace std::string_view_literals;

Result<Map> open_deepspeed(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_format().reader->open(**io, root, {});
}

/// A copy of a golden case that may be damaged.
class Copy {
 public:
  explicit Copy(const std::string& name) { fs::copy(golden_root(name), root(), fs::copy_options::recursive); }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string tag() const { return root() + "/global_step3"; }
  std::string optim(int rank, const std::string& prefix = "bf16_") const {
    return tag() + "/" + prefix + "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt";
  }
  std::string model(int rank) const {
    return tag() + "/zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_model_states.pt";
  }
  void remove_optimizer() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root()))
      if (entry.path().string().ends_with("optim_states.pt")) files.push_back(entry.path());
    for (const fs::path& file : files) fs::remove(file);
  }
  std::string model() const { return tag() + "/mp_rank_00_model_states.pt"; }

 private:
  TempDir directory_;
};

/// Opening must fail with this code, about this file, with these words.
void expect_error(const std::string& root, Errc code, const std::string& file, const std::string& words) {
  const auto map = open_deepspeed(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_EQ(map.error().file, file) << map.error().message;
  EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
}

TEST(DeepSpeedBroken, MissingRankFileIsNamed) {
  const std::string root = golden_root("broken/zero2_missing_rank");
  expect_error(root, Errc::incomplete, root + "/global_step3/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt",
               "1 file is missing: bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt");
}

// Deleted to save space, or never written, as by DeepSpeed 0.17 at stage 0 with bf16: the model file has the weights.
TEST(DeepSpeedBroken, WithoutAnyOptimizerFileTheWeightsAreRead) {
  for (const std::string name :
       {"deepspeed/zero2_bf16_dp4", "deepspeed/zero2_fp32_dp3_frozen", "deepspeed/moe_ep2_dp4_zero2_bf16",
        "deepspeed/pp2_dp2_zero1_fp32", "deepspeed/tp2_dp2_zero1_fp32", "deepspeed/moe_ep2_pp2_dp2_zero1_fp32",
        "deepspeed/moe_ep4_tp2_dp4_zero1_fp32", "deepspeed/moe_ep2_tp2_dp4_zero2_bf16_slices"}) {
    SCOPED_TRACE(name);
    const Copy copy(name);
    const auto whole = open_deepspeed(copy.root());
    ASSERT_TRUE(whole.has_value()) << whole.error().message;
    copy.remove_optimizer();
    const auto refused = open_deepspeed(copy.root());
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().code, Errc::incomplete);
    EXPECT_NE(refused.error().hint.find("--only weights"), std::string::npos) << refused.error().hint;
    auto io = open_io(IoKind::threads, 8);
    const auto map = deepspeed_format().reader->open(**io, copy.root(), {.weights_alone = true});
    ASSERT_TRUE(map.has_value()) << map.error().message;
    std::size_t weights = 0;
    for (const Tensor& tensor : whole->tensors) {
      if (tensor.role != Role::param && tensor.role != Role::buffer) continue;
      ++weights;
      const Tensor& found = map->tensors[find_tensor(*map, tensor.name)];
      EXPECT_EQ(found.role, tensor.role) << tensor.name;
      EXPECT_EQ(found.shape, tensor.shape) << tensor.name;
      EXPECT_TRUE(gather(*map, copy.root(), find_tensor(*map, tensor.name)).bytes ==
                  gather(*whole, golden_root(name), find_tensor(*whole, tensor.name)).bytes)
          << tensor.name;
    }
    EXPECT_EQ(map->tensors.size(), weights) << name;
    ASSERT_FALSE(map->findings.empty());
    EXPECT_NE(map->findings[0].text.find("optimizer files are missing"), std::string::npos);
  }
  for (const std::string name : {"deepspeed/zero3_bf16_dp4", "deepspeed/tp2_dp2_zero3_bf16"}) {
    const Copy sharded(name);  // whose weights are in these files
    sharded.remove_optimizer();
    auto io = open_io(IoKind::threads, 8);
    const auto map = deepspeed_format().reader->open(**io, sharded.root(), {.weights_alone = true});
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::incomplete);
    EXPECT_EQ(map.error().hint.find("--only weights"), std::string::npos) << map.error().hint;
  }
}

TEST(DeepSpeedBroken, MissingLastRankIsKnownFromThePartitionCount) {
  const std::string root = golden_root("broken/zero3_missing_last_rank");
  expect_error(root, Errc::incomplete, root + "/global_step3/zero_pp_rank_2_mp_rank_00_model_states.pt",
               "2 files are missing: zero_pp_rank_2_mp_rank_00_model_states.pt, "
               "zero_pp_rank_2_mp_rank_00_optim_states.pt");
}

TEST(DeepSpeedBroken, RanksThatPadTheirParametersDifferentlyAreCorrupt) {
  const Copy copy("deepspeed/zero1_bf16_dp3_aligned");
  ASSERT_TRUE(open_deepspeed(copy.root()));
  TorchPatch(copy.optim(1)).replace({"param_alignment_paddings"}, "K\x07K\0K\x05"sv, "K\x05K\0K\x07"sv).write();
  expect_error(copy.root(), Errc::corrupt, copy.optim(1), "param_alignment_paddings differ from those of ");
}

TEST(DeepSpeedBroken, FileThatIsACopyOfAnotherRanksIsCorrupt) {
  const std::string root = golden_root("broken/zero2_rank_copied");
  expect_error(root, Errc::corrupt, root + "/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
               "this is the part of rank 0, not of rank 1");
}

TEST(DeepSpeedBroken, LatestThatNamesAMissingTagSaysWhichTagsAreThere) {
  const std::string root = golden_root("broken/latest_names_missing_tag");
  expect_error(root, Errc::incomplete, root + "/latest", "global_step9, which is missing; tags here: global_step3");
}

class DeepSpeedRemoval : public testing::TestWithParam<const char*> {};

TEST_P(DeepSpeedRemoval, EveryFileIsMissedByName) {
  std::size_t removed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(golden_root(std::string("deepspeed/") + GetParam()))) {
    if (!entry.is_regular_file() || entry.path().filename() == "latest") continue;
    const Copy copy(std::string("deepspeed/") + GetParam());
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    ASSERT_TRUE(fs::remove(copy.tag() + "/" + name));
    const bool alone = fs::is_empty(copy.tag());
    expect_error(copy.root(), Errc::incomplete, alone ? copy.tag() : copy.tag() + "/" + name,
                 alone ? "holds no model states" : name);
    ++removed;
  }
  EXPECT_GT(removed, 0u);
}

TEST(DeepSpeedExpertOptimizers, TheLastIsMissedByNameFromTheGroupsOfTheOthers) {
  for (const char* name : {"moe_ep2_dp2_zero0_bf16", "moe_ep2_dp2_zero0_fp32"}) {
    const Copy copy(std::string("deepspeed/") + name);
    const std::string last = copy.tag() + "/expp_rank_1_mp_rank_00_optim_states.pt";
    ASSERT_TRUE(fs::remove(last));
    expect_error(copy.root(), Errc::incomplete, last,
                 "expp_rank_1_mp_rank_00_optim_states.pt: the file is missing: "
                 "global_step3/expp_rank_0_mp_rank_00_optim_states.pt is of 2 expert-parallel ranks");
  }
}

TEST_P(DeepSpeedRemoval, WithoutOptimizerFilesAllOfThemAreMissing) {
  const Copy copy(std::string("deepspeed/") + GetParam());
  std::size_t removed = 0;
  for (const auto& entry : fs::directory_iterator(copy.tag())) {
    if (entry.path().string().ends_with("optim_states.pt")) removed += fs::remove(entry.path()) ? 1U : 0U;
  }
  if (removed == 0) return;  // stage 0 has none
  const auto map = open_deepspeed(copy.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::incomplete);
  EXPECT_NE(map.error().message.find(std::to_string(removed) + " files are missing"), std::string::npos)
      << map.error().message;
  EXPECT_NE(map.error().message.find("zero_pp_rank_0_mp_rank_00_optim_states.pt"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedRemoval,
                         testing::Values("zero0_bf16_dp2", "zero1_fp16_dp2", "zero2_bf16_dp4",
                                         "zero3_fp32_dp3_tied_tiny", "moe_mixed_dp4_zero2_bf16"),
                         [](const auto& param) { return std::string(param.param); });

TEST(DeepSpeedTags, WithoutLatestTheOnlyTagIsTakenAndSeveralAreAmbiguous) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::remove(copy.root() + "/latest");
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->chosen, "tag global_step3, the only one");
  fs::copy(copy.tag(), copy.root() + "/global_step10");
  expect_error(copy.root(), Errc::ambiguous, copy.root(), "several tags and no 'latest': global_step10, global_step3");
}

TEST(DeepSpeedTags, LatestIsFollowedAlsoWithANewlineAndBesideOtherTags) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::create_directory(copy.root() + "/global_step9");
  test::write_file(copy.root() + "/global_step9/mp_rank_00_model_states.pt", "not looked at");
  test::write_file(copy.root() + "/zero_to_fp32.py", "not looked at");
  test::write_file(copy.root() + "/latest", "global_step3\n");
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->chosen, "tag global_step3 from 'latest'");
}

TEST(DeepSpeedTags, OtherTagsAreNamedAsNotRead) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::copy(copy.tag(), copy.root() + "/global_step9");
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::note);
  EXPECT_EQ(map->findings[0].text, "other tags are here, which are not read: global_step9");
}

TEST(DeepSpeedTags, FilesOfOneFastPersistWriterAreReadAndSharedOnesRefused) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  const auto plain = open_deepspeed(copy.root());
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(copy.tag())) files.push_back(entry.path());
  for (const fs::path& file : files) fs::rename(file, file.string() + "-0.1");
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors.size(), plain->tensors.size());
  EXPECT_TRUE(map->files[0].path.ends_with("_states.pt-0.1"));
  fs::remove(copy.optim(2) + "-0.1");
  expect_error(copy.root(), Errc::incomplete, copy.optim(2) + "-0.1", "1 file is missing");
  fs::rename(copy.model() + "-0.1", copy.model() + "-0.2");
  expect_error(copy.root(), Errc::unsupported, copy.model() + "-0.2", "several FastPersist writers");
}

TEST(DeepSpeedTags, FewerRanksThanTheDataMayShareTheParameters) {
  // MiCS: only the ranks of the first group write; dp_world_size is that of all.
  const Copy copy("deepspeed/zero3_bf16_dp4");
  for (int rank = 0; rank < 4; ++rank) {
    TorchPatch(copy.model(rank)).replace({"dp_world_size"}, "K\x04", "K\x08").write();
  }
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->meta.world_size, 8u);
}

TEST(DeepSpeedTags, AnEmptyLatestIsOfAnInterruptedSave) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  for (const char* text : {"", "\n"}) {
    test::write_file(copy.root() + "/latest", text);
    expect_error(copy.root(), Errc::incomplete, copy.root() + "/latest", "the file is empty; tags here: global_step3");
  }
}

TEST(DeepSpeedTags, LatestThatLeadsOutOfTheDirectoryIsRefused) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  test::write_file(copy.root() + "/latest", "../other/global_step3");
  expect_error(copy.root(), Errc::refused, copy.root() + "/latest", "leads out of the directory");
}

TEST(DeepSpeedContradictions, ElementCountsThatNoCutExplainsNameFileAndGroup) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  // The last rank's part is shorter by its padding: rank 0's file in its place has too many elements.
  fs::copy_file(copy.optim(0), copy.optim(3), fs::copy_options::overwrite_existing);
  expect_error(copy.root(), Errc::corrupt, copy.optim(3),
               "parameter group 0: 1466 fp32 elements, but rank 3 of 4 holds 1460 of 5858");
}

TEST(DeepSpeedContradictions, ShapesThatDoNotFillASubGroupNameFileAndSubGroup) {
  const Copy copy("deepspeed/zero3_bf16_dp4");
  TorchPatch(copy.model(0)).replace({"param_shapes", "wte.weight"}, "Ke", "Kf").write();  // 101 rows become 102
  expect_error(copy.root(), Errc::corrupt, copy.optim(0, "bf16_"),
               "sub-group 0: the fp32 master has 808 elements, but the parts of its 1 parameters take 816");
}

TEST(DeepSpeedContradictions, ShapesOfModuleAndGroupsMustAgree) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  TorchPatch(copy.model()).replace({"param_shapes", "wte.weight"}, "Ke", "Kf").write();
  expect_error(copy.root(), Errc::corrupt, copy.model(),
               "wte.weight: its shape in param_shapes differs from the module's");
}

TEST(DeepSpeedContradictions, WeightOffsetsMustFollowParamShapes) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  // h.0.ln.weight and ln_f.weight have one shape: exchanged in param_shapes, only their offsets tell.
  TorchPatch(copy.model())
      .replace({"param_shapes"}, "X\x0b\0\0\0h.0.ln.bias"sv, "X\x0b\0\0\0ln_f.weight"sv)
      .replace({"param_shapes", "h.0.proj.bias"}, "X\x0b\0\0\0ln_f.weight"sv, "X\x0b\0\0\0h.0.ln.bias"sv)
      .write();
  expect_error(copy.root(), Errc::corrupt, copy.model(), "the order of the group is not known");
}

TEST(DeepSpeedContradictions, ModelFilesOfTwoStepsAreCorrupt) {
  const Copy copy("deepspeed/zero3_fp32_dp3_tied_tiny");
  TorchPatch(copy.model(1)).replace({"global_steps"}, "K\x03", "K\x04").write();
  expect_error(copy.root(), Errc::corrupt, copy.model(1), "global_steps is 4, that of rank 0 is 3");
}

TEST(DeepSpeedContradictions, ModelStatesOfAnotherStepThanTheOptimizersAreNoted) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  TorchPatch(copy.model()).replace({"global_steps"}, "K\x03", "K\x04").write();
  const auto map = open_deepspeed(copy.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].text,
            "the optimizer has taken 3 steps, but the model states count 4: unless training began with a new "
            "optimizer, the files are of different saves");
}

TEST(DeepSpeedContradictions, OptimizerFilesOfTwoStepsAreCorrupt) {
  for (const char* name : {"zero2_bf16_dp4", "zero3_bf16_dp4"}) {
    const Copy copy(std::string("deepspeed/") + name);
    // The step of group 0 is the first storage: 3.0f becomes 3.5f.
    TorchPatch(copy.optim(2), "/data/0").replace({}, "\0\0\x40\x40"sv, "\0\0\x60\x40"sv).write();
    expect_error(
        copy.root(), Errc::corrupt, copy.optim(2),
        "another optimizer step than in global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt: 3.5, there 3: ");
  }
}

TEST(DeepSpeedContradictions, OptimizerFilesWithOtherStateNamesAreCorruptAtTheRankThatDiffers) {
  for (const auto& [name, prefix, rank] :
       {std::tuple("deepspeed/zero2_bf16_dp4", "bf16_", 1), std::tuple("deepspeed/zero3_bf16_dp4", "bf16_", 3),
        std::tuple("deepspeed/zero1_fp16_dp2", "", 1), std::tuple("deepspeed/bf16opt_dp2", "bf16_", 1)}) {
    const Copy copy(name);
    const std::string file = copy.optim(rank, prefix);
    TorchPatch(file).replace({}, "exp_avg_sq", "second_avg").write();
    expect_error(copy.root(), Errc::corrupt, file,
                 "other optimizer state than in global_step3/" + std::string(prefix) + "zero_pp_rank_0_");
  }
}

TEST(DeepSpeedContradictions, OptimizerFilesOfTwoWorldsAreCorrupt) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  TorchPatch(copy.optim(2)).replace({"partition_count"}, "K\x04K\x04", "K\x05K\x05").write();
  expect_error(copy.root(), Errc::corrupt, copy.optim(2), "stage 2 over 5 ranks, but rank 0 has stage 2 over 4");
}

TEST(DeepSpeedContradictions, PartitionCountOfTheFirstRankSaysWhatIsMissing) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  TorchPatch(copy.optim(0)).replace({"partition_count"}, "K\x04K\x04", "K\x06K\x06").write();
  expect_error(copy.root(), Errc::incomplete, copy.optim(4), "2 files are missing: ");
}

TEST(DeepSpeedContradictions, FilesOfASaveWithMoreRanksAreCorrupt) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::copy_file(copy.optim(3), copy.optim(4));
  expect_error(copy.root(), Errc::corrupt, copy.optim(4), " to a save with other ranks");
}

TEST(DeepSpeedContradictions, FilesOfASaveInAnotherPrecisionAreCorrupt) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::copy_file(copy.optim(3), copy.optim(3, ""));
  const auto map = open_deepspeed(copy.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_NE(map.error().message.find("optimizer files of two saves"), std::string::npos) << map.error().message;
}

TEST(DeepSpeedContradictions, FragmentsThatNoRankExplainsAreAWarning) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  TorchPatch(copy.optim(0)).replace({"param_slice_mappings", "wte.weight"}, "start", "stXrt").write();
  expect_error(copy.root(), Errc::corrupt, copy.optim(0), "not a fragment address");
  const Copy other("deepspeed/zero2_bf16_dp4");
  TorchPatch(other.optim(0)).replace({"param_slice_mappings"}, "wte.weight", "wtX.weight").write();
  const auto map = open_deepspeed(other.root());
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
}

TEST(DeepSpeedContradictions, ParameterInNoPartitionIsUncovered) {
  const Copy copy("deepspeed/zero3_bf16_dp4");
  TorchPatch(copy.model(0)).replace({"param_shapes"}, "wte.weight", "wtX.weight").write();
  expect_error(copy.root(), Errc::uncovered, copy.model(0), "wte.weight: in the module but in no rank's partition");
}

TEST(DeepSpeedContradictions, TruncatedFileIsCorruptByName) {
  const Copy copy("deepspeed/zero2_bf16_dp4");
  fs::resize_file(copy.optim(1), fs::file_size(copy.optim(1)) / 2);
  const auto map = open_deepspeed(copy.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().file, copy.optim(1));
}

TEST(DeepSpeedUnreadByContent, DegreesAndExpertsAreNamed) {
  {
    const Copy copy("deepspeed/zero2_bf16_dp4");
    TorchPatch(copy.model()).replace({"tp_degree"}, "K\x01", "K\x02").write();
    expect_error(copy.root(), Errc::incomplete, copy.model(), "one of 2 model-parallel ranks: mp_rank_01");
  }
  {
    const Copy copy("deepspeed/zero2_bf16_dp4");
    TorchPatch(copy.optim(0)).replace({"partition_count"}, "K\x04K\x04", "K\x04K\x02").write();
    expect_error(copy.root(), Errc::corrupt, copy.optim(0), "parameter group 1 is shared by 2 ranks");
  }
  {
    const Copy copy("deepspeed/zero2_bf16_dp4");
    test::write_file(copy.tag() + "/layer_0_expert_3_mp_rank_00_model_states.pt", "");
    expect_error(copy.root(), Errc::corrupt, copy.tag() + "/layer_0_expert_3_mp_rank_00_model_states.pt",
                 " to a save with other ranks");
  }
}

TEST(DeepSpeedUnreadByContent, UniversalCheckpointsAreAnotherFormat) {
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const std::string root = golden_root("deepspeed/universal_from_zero2_bf16_dp4");
  for (const std::string& place : {root, root + "/global_step3_universal"}) {
    const auto entries = (*io)->list(place);
    ASSERT_TRUE(entries.has_value());
    const auto match = deepspeed_format().detect({.io = **io, .root = place, .directory = true, .entries = *entries});
    ASSERT_TRUE(match.has_value());
    EXPECT_FALSE(match->has_value()) << place;
  }
}

}  // namespace
}  // namespace ckpt
