#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "convert/deepspeed/model_parallel/slice_rules.hpp"
#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using test::TorchPatch;

constexpr const char* kPipeline = "deepspeed/pp2_dp2_zero1_fp32";
constexpr const char* kBf16Pipeline = "deepspeed/pp2_dp2_zero0_bf16";
constexpr const char* kTensor = "deepspeed/tp2_dp2_zero1_fp32";
constexpr const char* kTensorStageThree = "deepspeed/tp2_dp2_zero3_bf16";
constexpr const char* kExpertSlices = "deepspeed/moe_ep2_tp2_dp4_zero2_bf16_slices";
constexpr const char* kWholeExperts = "deepspeed/moe_ep4_tp2_dp4_zero1_fp32";
constexpr const char* kWholeExpertsStageZero = "deepspeed/moe_ep2_tp2_dp2_zero0_fp32";
constexpr const char* kExpertPipeline = "deepspeed/moe_ep2_pp2_dp2_zero1_fp32";

Result<Map> open_deepspeed(const std::string& root, const MapRules* rules = nullptr) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_format().reader->open(**io, root, {.rules = rules});
}

class DeepSpeedModelParallel : public testing::TestWithParam<const char*> {};

TEST_P(DeepSpeedModelParallel, EveryElementEqualsTheTruthAndIsCovered) {
  const GoldenCase golden = load_golden(GetParam());
  const auto map = open_deepspeed(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  std::size_t masters = 0;
  std::size_t params = 0;
  const auto expect_equal = [&](const std::string& name, const GoldenCase::Truth& truth) {
    const std::size_t index = find_tensor(*map, name);
    EXPECT_EQ(map->tensors[index].dtype, truth.dtype);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.replicas_agree && gathered.crc_agrees);
  };
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string name = truth.key.substr(kind.size() + 1);
    if (kind == "param") ++params;
    const nlohmann::json names = golden.about->value("names", nlohmann::json::object());
    expect_equal(names.value(truth.key, kind == "param" ? name : "optimizer.state." + name + "." + kind), truth);
    if (kind != "master" || (*golden.about)["dtype"] != "fp32") continue;
    ++masters;
    // Of an fp32 run the weights are the masters, also where the truth has no weights.
    expect_equal(names.value("param/" + name, name), truth);
  }
  // No truth of the tensor-parallel case is a weight.
  const auto steps = static_cast<std::size_t>(std::count_if(
      map->tensors.begin(), map->tensors.end(), [](const Tensor& tensor) { return tensor.slot == "step"; }));
  const bool bf16_optimizer = map->variant.starts_with("BF16_Optimizer");
  EXPECT_EQ(steps > 0, (*golden.about)["zero_stage"] == 0 && !bf16_optimizer);  // there each parameter has its own
  EXPECT_EQ(map->tensors.size(), golden.truth.size() + steps + (params == 0 ? masters : 0));
  EXPECT_EQ(map->meta.step, (*golden.about)["step"].get<std::uint64_t>());
  EXPECT_EQ(map->meta.world_size, (*golden.about)["world_size"].get<std::uint64_t>());
  std::vector<std::pair<std::string, std::uint64_t>> mesh{{"dp", (*golden.about)["parallel"]["dp"]},
                                                          {"tp", (*golden.about)["parallel"]["tp"]},
                                                          {"pp", (*golden.about)["parallel"]["pp"]},
                                                          {"zero", (*golden.about)["zero_stage"]}};
  if (std::string_view(GetParam()).find("moe_") != std::string_view::npos)
    mesh.emplace_back("ep", (*golden.about)["parallel"]["ep"]);
  EXPECT_EQ(map->meta.mesh, mesh);
  const bool unnamed_tie = golden.about->contains("names");
  EXPECT_EQ(map->findings.size(), (*golden.about)["zero_stage"] == 3 || unnamed_tie ? 1u : 0u);
  for (const Finding& finding : map->findings) EXPECT_EQ(finding.severity, Severity::note) << finding.text;
}

class DeepSpeedModelParallelDamage : public testing::TestWithParam<const char*> {};

TEST_P(DeepSpeedModelParallelDamage, EveryMissingFileIsIncompleteAndEveryTruncatedOneCorrupt) {
  const std::string golden = golden_root(GetParam());
  std::size_t removed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(golden)) {
    const std::string file = entry.path().string().substr(golden.size());
    if (!file.ends_with(".pt")) continue;
    SCOPED_TRACE(file);
    const TempDir directory(memory_temp_dir());
    const std::string root = directory.path() + "/ckpt";
    fs::copy(golden, root, fs::copy_options::recursive);
    fs::resize_file(root + file, fs::file_size(root + file) - 5);
    const auto cut = open_deepspeed(root);
    ASSERT_FALSE(cut.has_value());
    EXPECT_EQ(exit_code(cut.error()), 15) << cut.error().message;
    EXPECT_EQ(cut.error().file, root + file) << cut.error().message;
    fs::remove(root + file);
    const auto map = open_deepspeed(root);
    if (file.find("layer_02") != std::string::npos) {  // of an activation: it holds nothing
      EXPECT_TRUE(map.has_value());
      continue;
    }
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::incomplete) << map.error().message;
    if (file.find("layer_00") == std::string::npos) {
      EXPECT_EQ(map.error().file, root + file) << map.error().message;
    } else {
      EXPECT_EQ(map.error().tensor, "tied_modules.embed.weight");
    }
    ++removed;
  }
  EXPECT_GE(removed, 6u);
}

std::string case_name(const testing::TestParamInfo<const char*>& param) {
  return std::string(param.param).substr(10);
}
INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedModelParallel,
                         testing::Values(kPipeline, kTensor, kTensorStageThree, "deepspeed/tp2_dp2_zero0_fp32",
                                         "deepspeed/tp2_dp1_zero0_bf16", "deepspeed/pp2_dp2_zero0_fp32",
                                         "deepspeed/pp2_dp2_zero0_fp16", kBf16Pipeline, kExpertSlices, kWholeExperts,
                                         kWholeExpertsStageZero, kExpertPipeline,
                                         "deepspeed/moe_ep1_pp2_dp2_zero0_fp16"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedModelParallelDamage,
                         testing::Values(kPipeline, kTensor, kTensorStageThree, kBf16Pipeline, kExpertSlices,
                                         kWholeExperts, kWholeExpertsStageZero, kExpertPipeline),
                         case_name);

TEST(DeepSpeedPipeline, WithoutZeroAMissingLayerIsRefusedAndNeverGuessed) {
  for (const char* layer : {"layer_00", "layer_01", "layer_03", "layer_04"}) {
    SCOPED_TRACE(layer);
    const TempDir directory(memory_temp_dir());
    const std::string root = directory.path() + "/ckpt";
    fs::copy(golden_root("deepspeed/pp2_dp2_zero0_fp32"), root, fs::copy_options::recursive);
    fs::remove(root + "/global_step3/" + layer + "-model_states.pt");
    const auto map = open_deepspeed(root);
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(exit_code(map.error()), 12) << map.error().message;
    EXPECT_NE(map.error().message.find("a pipeline without ZeRO"), std::string::npos) << map.error().message;
    EXPECT_NE(map.error().hint.find("layer_*"), std::string::npos) << map.error().hint;
  }
}

TEST(DeepSpeedPipeline, BothStagesHoldCopiesOfATiedLayerInEqualParts) {
  const std::string root = golden_root(kPipeline);
  const auto map = open_deepspeed(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::pair<Extent, std::string>> parts;
  const std::size_t index = find_tensor(*map, "optimizer.state.tied_modules.embed.weight.master");
  ASSERT_TRUE(map->index
                  ->chunks(index, {0, 2424},
                           [&](const PlacedChunk& placed) -> Result<> {
                             parts.emplace_back(*placed.chunk.flat, map->files[placed.where.file].path.substr(13, 15));
                             return {};
                           })
                  .has_value());
  // Stage 0 cuts its group at 1650, stage 1 at 1668.
  const std::vector<std::pair<Extent, std::string>> expected{
      {{0, 1650}, "zero_pp_rank_0_"},    {{0, 1650}, "zero_pp_rank_0_"},    {{1650, 1668}, "zero_pp_rank_1_"},
      {{1650, 1668}, "zero_pp_rank_0_"}, {{1668, 2424}, "zero_pp_rank_1_"}, {{1668, 2424}, "zero_pp_rank_1_"}};
  EXPECT_EQ(parts, expected);
}

/// A copy of a case with experts, to be damaged.
class ExpertCopy {
 public:
  explicit ExpertCopy(const char* name) { fs::copy(golden_root(name), root(), fs::copy_options::recursive); }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string file(const std::string& name) const { return root() + "/global_step3/" + name; }
  void expect_error(Errc code, const std::string& name, const std::string& words) const {
    const auto map = open_deepspeed(root());
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, code) << map.error().message;
    EXPECT_EQ(map.error().file, file(name)) << map.error().message;
    EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
  }

 private:
  TempDir directory_{memory_temp_dir()};
};

TEST(DeepSpeedModelParallelExperts, AnExpertThatNoRankOfThisSaveHasIsCorrupt) {
  const std::string words = "belongs to a save with other ranks or experts";
  // With slices of experts every rank has expert 3 of 4, and none has expert 4.
  const ExpertCopy slices(kExpertSlices);
  fs::copy(slices.file("layer_0_expert_3_mp_rank_01_model_states.pt"),
           slices.file("layer_0_expert_4_mp_rank_01_model_states.pt"));
  slices.expect_error(Errc::corrupt, "layer_0_expert_4_mp_rank_01_model_states.pt", words);
  const ExpertCopy stage_zero(kWholeExpertsStageZero);
  fs::copy(stage_zero.file("expp_rank_0_mp_rank_00_optim_states.pt"),
           stage_zero.file("expp_rank_1_mp_rank_00_optim_states.pt"));
  stage_zero.expect_error(Errc::corrupt, "expp_rank_1_mp_rank_00_optim_states.pt", words);
  const ExpertCopy pipeline(kExpertPipeline);
  fs::copy(pipeline.file("layer_0_expert_0_mp_rank_01_model_states.pt"),
           pipeline.file("layer_1_expert_0_mp_rank_01_model_states.pt"));
  pipeline.expect_error(Errc::corrupt, "layer_1_expert_0_mp_rank_01_model_states.pt", words);
}

TEST(DeepSpeedModelParallelExperts, APipelineInBf16WithoutZeroIsRefusedByName) {
  const std::string name = "mp_rank_00_model_states.pt";
  const ExpertCopy copy(kExpertPipeline);
  TorchPatch(copy.file(name)).replace({}, "param_shapes", "param_xxxxxx").write();
  copy.expect_error(Errc::unsupported, name, "in bf16 without ZeRO (BF16_Optimizer)");
}

TEST(DeepSpeedModelParallelExperts, PartitionCountsThatContradictTheExpertsAreCorrupt) {
  const std::string name = "bf16_zero_pp_rank_2_mp_rank_01_optim_states.pt";
  const ExpertCopy copy(kExpertSlices);
  TorchPatch(copy.file(name)).replace({"partition_count"}, "K\x02", "K\x04").write();
  copy.expect_error(Errc::corrupt, name, "another stage or number of ranks");
}

TEST(DeepSpeedModelParallelExperts, AnExpertsFileCopiedOverAnotherRanksIsCorrupt) {
  const ExpertCopy copy(kWholeExperts);
  fs::copy(copy.file("layer_0_expert_0_mp_rank_00_model_states.pt"),
           copy.file("layer_0_expert_1_mp_rank_01_model_states.pt"), fs::copy_options::overwrite_existing);
  copy.expect_error(Errc::corrupt, "layer_0_expert_1_mp_rank_01_model_states.pt", "not of expert 1");
}

/// A copy of the tensor-parallel case whose model files say something else.
class Patched {
 public:
  Patched(std::initializer_list<std::string_view> keys, std::string_view from, std::string_view to) {
    fs::copy(golden_root(kTensor), root(), fs::copy_options::recursive);
    for (const char* rank : {"00", "01"}) TorchPatch(model(rank)).replace(keys, from, to).write();
  }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string model(const std::string& rank) const {
    return root() + "/global_step2/mp_rank_" + rank + "_model_states.pt";
  }

 private:
  TempDir directory_{memory_temp_dir()};
};

void expect_error(const Patched& patched, Errc code, const std::string& tensor, const std::string& words) {
  const auto map = open_deepspeed(patched.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_EQ(map.error().tensor, tensor) << map.error().message;
  EXPECT_EQ(map.error().file, patched.model("00")) << map.error().message;
  EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
}

TEST(DeepSpeedTensorParallel, SlicesWithoutARuleAreRefusedNotGuessed) {
  expect_error(Patched({}, "universal_checkpoint_info", "universal_checkpoint_xxxx"), Errc::unsupported,
               "embed_tokens.weight", "no universal_checkpoint_info");
  expect_error(Patched({"parameter_with_row"}, "^down_proj\\.weight$", "^down_proj(.weight$"), Errc::unsupported,
               "up_proj.weight", "is of a form that is not supported");
}

MapRules joins(const std::string& rules) {
  auto parsed = MapRules::parse(R"({"ckpt-map": 1, "rules": [)" + rules + "]}", "rules.json");
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  return *std::move(parsed);
}

TEST(DeepSpeedTensorParallel, SlicesWithoutARuleAreJoinedAsTheUserSaysAndTheRefusalSaysWhatToSay) {
  const Patched patched({}, "universal_checkpoint_info", "universal_checkpoint_xxxx");
  const auto refused = open_deepspeed(patched.root());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().hint.find(R"({"tensor": "embed_tokens.weight", "join": 0})"), std::string::npos)
      << refused.error().hint;
  const std::string most = R"({"tensor": "embed*", "join": "same"}, {"tensor": "up_proj.*", "join": 0},
      {"tensor": "down_proj.weight", "join": 1}, {"tensor": "down_proj.bias", "join": "same"},
      {"tensor": "norm.*", "join": "same"})";
  const MapRules without_one = joins(most);
  const auto one_left = open_deepspeed(patched.root(), &without_one);
  ASSERT_FALSE(one_left.has_value());
  EXPECT_EQ(one_left.error().tensor, "qkv.weight") << one_left.error().message;

  // Its fused parts are cut each by itself, which join cannot say: the rows of the ranks follow each other.
  const MapRules all = joins(most + R"(, {"tensor": "qkv.weight", "join": 0})");
  const auto map = open_deepspeed(patched.root(), &all);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_TRUE(all.unused().empty());
  std::size_t compared = 0;
  for (const GoldenCase::Truth& truth : load_golden(kTensor).truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string name = truth.key.substr(kind.size() + 1);
    const std::size_t index = find_tensor(*map, "optimizer.state." + name + "." + kind);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    if (name == "qkv.weight") continue;
    EXPECT_TRUE(gather(*map, patched.root(), index).bytes == truth.bytes);
    ++compared;
  }
  EXPECT_EQ(compared, 21u);
}

TEST(DeepSpeedTensorParallel, AJoinThatDoesNotFitTheSlicesIsAUsageError) {
  for (const char* rule : {R"({"tensor": "norm.weight", "join": 1})", R"({"tensor": "qkv.weight", "join": 2})"}) {
    const MapRules rules = joins(rule);
    const auto map = open_deepspeed(golden_root(kTensor), &rules);
    ASSERT_FALSE(map.has_value()) << rule;
    EXPECT_EQ(map.error().code, Errc::usage);
    EXPECT_NE(map.error().message.find("rules.json: --map: "), std::string::npos) << map.error().message;
    EXPECT_NE(map.error().message.find("do not fit together along dimension"), std::string::npos);
  }
}

/// What no optimizer has may be a buffer: only the user knows.
TEST(DeepSpeedTensorParallel, WhatWouldBeKeptOnceARankIsJoinedAsTheUserSays) {
  const Patched patched({"module"}, "norm.weight", "nxrm.weight");
  const MapRules rules = joins(R"({"tensor": "nxrm.weight", "join": "same"})");
  const auto map = open_deepspeed(patched.root(), &rules);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors[find_tensor(*map, "nxrm.weight")].shape, Shape{8});
  for (const Tensor& tensor : map->tensors) EXPECT_EQ(tensor.name.find("nxrm.weight@"), std::string::npos);
}

TEST(DeepSpeedTensorParallel, RulesThatDoNotFitTheSlicesAreCorrupt) {
  // The first width of the fused parts, for the first rank: 4.
  expect_error(Patched({"sub_param_shard_widths"}, "K\x04K\x04", "K\x05K\x04"), Errc::corrupt, "qkv.weight",
               "do not add up");
  // One rank's rules alone.
  const Patched patched({}, "universal_checkpoint_info", "universal_checkpoint_info");
  TorchPatch(patched.model("01")).replace({}, "^norm\\.bias$", "^norx\\.bias$").write();
  const auto map = open_deepspeed(patched.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().file, patched.model("01"));
}

TEST(DeepSpeedTensorParallel, WhatNoRuleSpeaksOfIsKeptOnceARank) {
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  fs::copy(golden_root(kTensor), root, fs::copy_options::recursive);
  // The module's name of a weight, which the optimizer does not have: it may be a buffer.
  for (const char* rank : {"00", "01"}) {
    TorchPatch(root + "/global_step2/mp_rank_" + rank + "_model_states.pt")
        .replace({"module"}, "norm.weight", "nxrm.weight")
        .write();
  }
  const auto map = open_deepspeed(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const char* name : {"nxrm.weight@0", "nxrm.weight@1"}) {
    EXPECT_EQ(map->tensors[find_tensor(*map, name)].shape, Shape{8});
  }
  ASSERT_FALSE(map->findings.empty());
  EXPECT_NE(map->findings.back().text.find("kept once a rank"), std::string::npos);
}

TEST(DeepSpeedTensorParallel, StateThatItsRanksSwappedToNvmeIsRefusedByName) {
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  fs::copy(golden_root(kTensorStageThree), root, fs::copy_options::recursive);
  const std::string swapped = golden_root("deepspeed/zero3_bf16_dp1_nvme") + "/global_step2/";
  const std::string name = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
  fs::copy(swapped + "offloaded_tensors", root + "/global_step3/offloaded_tensors", fs::copy_options::recursive);
  fs::copy_file(swapped + name, root + "/global_step3/" + name, fs::copy_options::overwrite_existing);
  TorchPatch(root + "/global_step3/" + name).replace({"partition_count"}, "K\x01", "K\x02").write();
  const auto map = open_deepspeed(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::unsupported) << map.error().message;
  EXPECT_EQ(map.error().file, root + "/global_step3/" + name);
  EXPECT_NE(map.error().message.find("swapped to NVMe"), std::string::npos) << map.error().message;
}

TEST(SlicePatterns, MatchFromTheStartAsPythonDoes) {
  const auto matches = [](const char* pattern, const char* text) {
    const auto match = deepspeed::matches_pattern(pattern, text);
    EXPECT_TRUE(match.has_value()) << pattern;
    return match.value_or(false);
  };
  EXPECT_TRUE(matches("^qkv\\.weight$", "qkv.weight"));
  EXPECT_FALSE(matches("^qkv\\.weight$", "qkvxweight"));
  EXPECT_FALSE(matches("^qkv\\.weight$", "qkv.weights"));
  EXPECT_TRUE(matches("qkv", "qkv.weight"));
  EXPECT_FALSE(matches("qkv", "a.qkv.weight"));
  EXPECT_TRUE(matches("\\d+.self_attention.dense.weight", "12.self_attention.dense.weight"));
  EXPECT_FALSE(matches("\\d+.self_attention.dense.weight", "x.self_attention.dense.weight"));
  EXPECT_TRUE(matches(".*down_proj\\.weight$", "layers.3.down_proj.weight"));
  EXPECT_TRUE(matches("ab?c*d", "ad"));
  EXPECT_TRUE(matches("ab?c*d", "abcccd"));
  EXPECT_FALSE(matches("ab?c*d", "abbd"));
  EXPECT_TRUE(matches("", "anything"));
  EXPECT_FALSE(matches("a+b", "b"));
}

TEST(SlicePatterns, OtherFormsAreNotGuessed) {
  for (const char* pattern : {"(a|b)", "[ab]", "a{2}", "a|b", "a$b", "*a", "a\\b", "a\\", "a**"}) {
    const auto match = deepspeed::matches_pattern(pattern, "a");
    ASSERT_FALSE(match.has_value()) << pattern;
    EXPECT_EQ(match.error().code, Errc::unsupported);
  }
}

TEST(SlicePatterns, TimeGrowsWithPatternTimesTextOnly) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  const auto match = deepspeed::matches_pattern(pattern + "b$", std::string(2000, 'a').c_str());
  ASSERT_TRUE(match.has_value());
  EXPECT_FALSE(*match);
}

}  // namespace
}  // namespace ckpt
