// Genuine checkpoints of Megatron-LM and megatron-core: torch_dist, and files of ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/megatron/weight_rules.hpp"
#include "convert/open_source.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class MegatronGolden : public testing::Test {
 protected:
  Result<Source> open(const std::string& path, const std::string& from = "") {
    return open_source(*io_, path, from, {.metadata_limit = std::uint64_t{256} << 20});
  }
  /// A copy to change.
  std::string copy(const std::string& root) {
    fs::copy(root, directory_.path() + "/copy", fs::copy_options::recursive);
    return directory_.path() + "/copy";
  }

  TempDir directory_;
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
};

/// `by_rank`: ranks may hold copies, and states of their own that the truth does not have.
void expect_truth(const Source& source, const GoldenCase& golden, bool by_rank = false) {
  std::set<std::string> expected;
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t slash = truth.key.find('/');
    const std::string kind = truth.key.substr(0, slash);
    const std::string weight = truth.key.substr(slash + 1);
    const auto found = std::ranges::find_if(source.map.tensors, [&](const Tensor& tensor) {
      return kind == "param" ? tensor.role == Role::param && tensor.name == weight
                             : tensor.role == Role::slot && tensor.slot == kind && tensor.parameter == weight;
    });
    ASSERT_NE(found, source.map.tensors.end());
    expected.insert(found->name);
    EXPECT_EQ(found->dtype, truth.dtype);
    EXPECT_EQ(found->shape, truth.shape);
    const Gathered gathered =
        gather(source.map, source.root, static_cast<std::size_t>(found - source.map.tensors.begin()));
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && (gathered.once || by_rank) && gathered.replicas_agree && gathered.crc_agrees);
  }
  for (const Tensor& tensor : source.map.tensors)
    EXPECT_TRUE(tensor.role == Role::blob || expected.contains(tensor.name) ||
                (tensor.role == Role::slot && (by_rank || tensor.slot == "step")))
        << tensor.name << " is in no truth";
}

TEST_F(MegatronGolden, WeightsAndStateOfARunAreThoseThatItSaved) {
  const GoldenCase golden = load_golden("megatron/torch_dist_tp2_pp2_dp2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_EQ(source->format->name, "megatron");
  EXPECT_EQ(source->map.meta.step, 2U);
  EXPECT_EQ(source->map.meta.world_size, 8U);
  EXPECT_EQ(source->map.meta.mesh,
            (std::vector<std::pair<std::string, std::uint64_t>>{{"dp", 2}, {"tp", 2}, {"pp", 2}}));
  EXPECT_TRUE(source->why.find("names iter_0000002") != std::string::npos) << source->why;
}

TEST_F(MegatronGolden, LayersOfMultiTokenPredictionHaveTheirState) {
  const GoldenCase golden = load_golden("megatron/torch_dist_mtp_tp2_pp2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
}

TEST_F(MegatronGolden, FlattenedStateHasTheShapesOfItsWeights) {
  const GoldenCase golden = load_golden("megatron/torch_dist_flattened_tp2_pp2_dp2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_TRUE(source->map.findings.empty());
}

TEST_F(MegatronGolden, BucketsOfTheDistributedOptimizerAreStateOfTheirWeights) {
  const GoldenCase golden = load_golden("megatron/torch_dist_buckets_tp2_dp2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_TRUE(source->map.findings.empty());
  EXPECT_TRUE(std::ranges::any_of(source->map.objects, [](const NamedObject& object) {
    return object.name == "optimizer.optimizer.param_groups.1.weight_decay";
  }));
}

TEST_F(MegatronGolden, ExpertsHaveBucketsOfTheirOwn) {
  const GoldenCase golden = load_golden("megatron/torch_dist_buckets_tp2_pp2_ep2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_TRUE(source->map.findings.empty());
  for (const bool of_experts : {false, true}) {
    const auto group = std::ranges::find(
        source->map.objects, fmt::format("optimizer.{:d}.optimizer.param_groups.0.is_expert_parallel", of_experts),
        &NamedObject::name);
    ASSERT_NE(group, source->map.objects.end());
    EXPECT_EQ(std::get<bool>(group->value.v), of_experts);
  }
}

TEST_F(MegatronGolden, TheCommonStateMayBeAFile) {
  const GoldenCase golden = load_golden("megatron/core_torch_dist_w4");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_EQ(source->map.meta.step, 7U);
  const auto iteration = std::ranges::find(source->map.objects, "iteration", &NamedObject::name);
  EXPECT_NE(iteration, source->map.objects.end());
  EXPECT_TRUE(std::ranges::any_of(source->map.files, [](const MapFile& file) { return file.path == "common.pt"; }));
}

TEST_F(MegatronGolden, FilesOfRanksAreJoined) {
  for (const char* name :
       {"legacy_tp2_pp2", "legacy_tp2_pp2_dp2_distopt", "legacy_pp2_dp2_distopt_buckets", "legacy_moe_ep2_pp2_dp2"}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = load_golden(std::string("megatron/") + name);
    const auto source = open(golden.root);
    ASSERT_TRUE(source) << source.error().message;
    expect_truth(*source, golden, true);
    EXPECT_EQ(source->map.meta.step, golden.about->at("step").get<std::uint64_t>());
    std::vector<std::uint32_t> all(source->map.tensors.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    EXPECT_TRUE(check_coverage(source->map, all));
    for (const Finding& finding : source->map.findings)
      EXPECT_EQ(finding.text.find("of a form that is not known"), std::string::npos) << finding.text;
  }
}

TEST_F(MegatronGolden, WhatARankDidNotWriteIsIncomplete) {
  const std::string run = copy(golden_root("megatron/legacy_tp2_pp2_dp2_distopt")) + "/iter_0000002/";
  fs::rename(run + "mp_rank_01_001/distrib_optim.pt", directory_.path() + "/kept");
  auto opened = open(run);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::incomplete);
  EXPECT_NE(opened.error().message.find("mp_rank_01_001/distrib_optim.pt"), std::string::npos);
  fs::rename(directory_.path() + "/kept", run + "mp_rank_01_001/distrib_optim.pt");
  fs::remove(run + "mp_rank_01_001/model_optim_rng.pt");
  opened = open(run);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("mp_rank_01_001/model_optim_rng.pt"), std::string::npos);
  fs::remove_all(run + "mp_rank_01_001");
  opened = open(run);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::incomplete);
  EXPECT_NE(opened.error().message.find("3 folders of ranks, not 4"), std::string::npos) << opened.error().message;
}

TEST_F(MegatronGolden, ADirectoryOfAnotherIterationsNameIsWarnedOf) {
  for (const char* name : {"legacy_tp2_pp2", "torch_dist_flattened_tp2_pp2_dp2"}) {
    const std::string run = copy(golden_root(std::string("megatron/") + name));
    fs::rename(run + "/iter_0000002", run + "/iter_0000009");
    const auto source = open(run + "/iter_0000009");
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_TRUE(std::ranges::any_of(source->map.findings, [](const Finding& finding) {
      return finding.severity == Severity::warning && finding.text.find("are of iteration 2") != std::string::npos;
    })) << name;
    fs::remove_all(run);
  }
}

TEST_F(MegatronGolden, FilesOfRanksThatWereMixedUpAreRefused) {
  const std::string run = copy(golden_root("megatron/legacy_tp2_pp2")) + "/iter_0000002/";
  const auto expect_refused = [&] {
    const auto opened = open(run);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Errc::corrupt);
    EXPECT_NE(opened.error().message.find("exchanged or copied"), std::string::npos) << opened.error().message;
  };
  fs::rename(run + "mp_rank_00_001", run + "kept");
  fs::rename(run + "mp_rank_01_001", run + "mp_rank_00_001");
  fs::rename(run + "kept", run + "mp_rank_01_001");
  expect_refused();
  fs::remove_all(run + "mp_rank_00_001");
  fs::copy(run + "mp_rank_00_000", run + "mp_rank_00_001");
  expect_refused();
}

TEST(MegatronWeights, TheRowsOfAFirstLayerShowWhetherItIsGated) {
  EXPECT_TRUE(megatron::contradicts_gate(128, 64, false));
  EXPECT_TRUE(megatron::contradicts_gate(64, 64, true));
  EXPECT_FALSE(megatron::contradicts_gate(128, 64, true));
  EXPECT_FALSE(megatron::contradicts_gate(64, 64, false));
  EXPECT_FALSE(megatron::contradicts_gate(129, 64, false));
  EXPECT_FALSE(megatron::contradicts_gate(100, 64, true));
}

TEST(MegatronWeights, NamesTellLayerExpertAndCut) {
  using megatron::Cut;
  const auto qkv = megatron::weight_of("decoder.layers.12.self_attention.linear_qkv.weight", false);
  EXPECT_EQ(qkv.name, "decoder.layers.self_attention.linear_qkv.weight");
  EXPECT_EQ(qkv.layer, 12U);
  EXPECT_EQ(qkv.cut, Cut::columns);
  EXPECT_FALSE(qkv.is_gated);
  const auto expert = megatron::weight_of("decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight", true);
  EXPECT_EQ(expert.name, "decoder.layers.mlp.experts.experts.linear_fc1.weight");
  EXPECT_EQ(expert.expert, 3U);
  EXPECT_TRUE(expert.is_gated);
  const auto grouped = megatron::weight_of("decoder.layers.7.mlp.experts.linear_fc2.weight11", false);
  EXPECT_EQ(grouped.name, "decoder.layers.mlp.experts.experts.linear_fc2.weight");
  EXPECT_EQ(grouped.expert, 11U);
  EXPECT_EQ(grouped.cut, Cut::rows);
  EXPECT_EQ(megatron::weight_of("decoder.layers.1.input_layernorm.weight", true).name,
            "decoder.layers.self_attention.linear_qkv.layer_norm_weight");
  EXPECT_EQ(megatron::weight_of("decoder.layers.1.input_layernorm.weight", false).cut, Cut::none);
  EXPECT_EQ(megatron::weight_of("decoder.layers.1.mixer.in_proj.weight", false).cut, Cut::unknown);
  EXPECT_EQ(megatron::weight_of("mtp.layers.0.eh_proj.weight", true).cut, Cut::columns);
  EXPECT_EQ(megatron::weight_of("mtp.layers.1.mtp_model_layer.input_layernorm.weight", true).name,
            "mtp.layers.1.transformer_layer.self_attention.linear_qkv.layer_norm_weight");
  for (const char* number : {"x", "", "1048576", "18446744073709551615", "18446744073709551616"})
    EXPECT_EQ(megatron::weight_of(std::string("decoder.layers.") + number + ".mlp.linear_fc2.bias", false).layer,
              std::nullopt);
}

TEST_F(MegatronGolden, ATrackerThatLeadsNowhereIsIncomplete) {
  const std::string run = copy(golden_root("megatron/torch_dist_tp2_pp2_dp2"));
  const std::string tracker = run + "/latest_checkpointed_iteration.txt";
  const auto write = [&](const std::string& text) { std::ofstream(tracker) << text; };
  write("");
  EXPECT_EQ(open(run).error().code, Errc::incomplete);
  write("3");
  EXPECT_NE(open(run).error().message.find("names iter_0000003, which is missing"), std::string::npos);
  write("later");
  EXPECT_NE(open(run).error().message.find("names no iteration"), std::string::npos);
  fs::rename(run + "/iter_0000002", run + "/release");
  write("release\n");
  EXPECT_TRUE(open(run)) << open(run).error().message;
  fs::remove(run + "/release/.metadata");
  fs::remove(run + "/release/metadata.json");
  const auto unfinished = open(run);
  ASSERT_FALSE(unfinished);
  EXPECT_EQ(unfinished.error().code, Errc::uncommitted);
  EXPECT_NE(unfinished.error().message.find("never finished"), std::string::npos) << unfinished.error().message;
}

TEST_F(MegatronGolden, WithoutMetadataJsonItIsReadThroughTheTracker) {
  const std::string run = copy(golden_root("megatron/torch_dist_tp2_pp2_dp2"));
  fs::remove(run + "/iter_0000002/metadata.json");
  const auto source = open(run);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->map.variant.substr(0, 9), "torch_dcp");
}

}  // namespace
}  // namespace ckpt
