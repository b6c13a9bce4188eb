// What Megatron-LM's torch_dist gets of sources that golden checkpoints do not show.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convert/formats.hpp"
#include "convert/megatron/extra_states.hpp"
#include "convert/raw_source.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt {
namespace {

using Keys = std::vector<std::string>;

const std::string kWeight = "decoder.layers.mlp.linear_fc2.weight";
const Tensor kStacked{.name = kWeight, .dtype = Dtype::bf16, .shape = {2, 4, 3}};

Tensor slot(const std::string& name, const Shape& shape, const std::string& parameter = kWeight) {
  return {.name = "optimizer.state." + parameter + "." + name,
          .dtype = Dtype::f32,
          .shape = shape,
          .role = Role::slot,
          .parameter = parameter,
          .slot = name};
}

struct Written {
  std::set<std::string> keys{};
  std::vector<Finding> dropped{};
  Keys last{};  ///< of small files, in their order
};

Written write(RawSource& source) {
  Written out;
  const Skeleton skeleton = source.lay_out(megatron_format(), source.dir.path() + "/target");
  if (!skeleton.finish) return out;
  const auto small = skeleton.finish({});
  EXPECT_TRUE(small);
  for (const SmallFile& file : *small) {
    out.last.push_back(file.path);
    if (!file.path.ends_with(".metadata")) continue;
    const auto metadata = dcp::parse_metadata(std::as_bytes(std::span(file.bytes)));
    EXPECT_TRUE(metadata);
    for (const dcp::Entry& entry : metadata->entries) out.keys.insert(entry.fqn);
  }
  out.dropped = skeleton.dropped;
  return out;
}

bool skips_state(const Written& written) {
  return std::ranges::any_of(written.dropped,
                             [](const Finding& finding) { return finding.skipped == Skipped::training_state; });
}

TEST(MegatronWriter, StateIsStoredByWeightAndTheTrackerComesLast) {
  RawSource source({kStacked, slot("master", {2, 4, 3}), slot("exp_avg", {2, 4, 3})});
  source.map.format = "megatron-legacy";
  source.map.meta.step = 12;
  const Written written = write(source);
  EXPECT_TRUE(written.keys.contains("optimizer.state.param." + kWeight));
  EXPECT_TRUE(written.keys.contains("optimizer.state.exp_avg." + kWeight));
  EXPECT_FALSE(skips_state(written));
  EXPECT_EQ(written.last,
            (Keys{"iter_0000012/.metadata", "iter_0000012/metadata.json", "latest_checkpointed_iteration.txt"}));
}

TEST(MegatronWriter, FlattenedStateAndThatOfOtherOptimizersIsLeftOutByName) {
  RawSource flat({kStacked, slot("exp_avg", {2, 12})});
  flat.map.format = "megatron";
  Written written = write(flat);
  EXPECT_TRUE(skips_state(written));
  EXPECT_FALSE(written.keys.contains("optimizer.state.exp_avg." + kWeight));

  RawSource other({kStacked, slot("exp_avg", {2, 4, 3})});
  other.map.format = "deepspeed";
  written = write(other);
  EXPECT_TRUE(skips_state(written));
  EXPECT_FALSE(written.keys.contains("optimizer.state.exp_avg." + kWeight));
  EXPECT_TRUE(written.keys.contains(kWeight));
}

TEST(MegatronWriter, BucketsKeepTheirKeys) {
  const std::string bucket =
      "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.param";
  RawSource source(
      {kStacked, {.name = bucket, .dtype = Dtype::f32, .shape = {24}, .role = Role::slot, .slot = "param"}});
  source.map.format = "megatron";
  const Written written = write(source);
  EXPECT_TRUE(written.keys.contains(bucket));
  EXPECT_FALSE(skips_state(written));
}

TEST(MegatronWriter, NamesOfOtherFrameworksAreRefused) {
  RawSource source({{.name = "model.layers.0.mlp.up_proj.weight", .dtype = Dtype::bf16, .shape = {4, 3}}});
  source.request.target = "target";
  EXPECT_FALSE(megatron_format().writer->fits(source.map));
  const auto refused = megatron_format().writer->lay_out(source.request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().hint.find("--names megatron"), std::string::npos);
}

// Those that megatron-core 0.16.1 saves of such a layer, and that of core_attention, which Transformer Engine has.
TEST(MegatronWriter, LayersOfMultiTokenPredictionHaveExtraStates) {
  const std::string layer = "mtp.layers.0.transformer_layer.";
  EXPECT_EQ(*megatron::extra_state_keys({{"mtp.layers.0.eh_proj.weight", {16, 32}},
                                         {layer + "mlp.linear_fc1.weight", {64, 16}},
                                         {layer + "self_attention.linear_qkv.weight", {32, 16}}}),
            (std::vector<std::string>{"mtp.layers.0.eh_proj._extra_state/shard_0_1",
                                      layer + "mlp.linear_fc1._extra_state/shard_0_1",
                                      layer + "self_attention.linear_qkv._extra_state/shard_0_1",
                                      layer + "self_attention.core_attention._extra_state/shard_0_1"}));
}

TEST(MegatronWriter, EveryLayerAndExpertHasItsExtraStates) {
  EXPECT_EQ(*megatron::extra_state_keys({{"decoder.layers.mlp.experts.experts.linear_fc1.weight", {2, 2, 8, 4}},
                                         {"decoder.layers.mlp.router.weight", {2, 2, 4}},
                                         {"embedding.word_embeddings.weight", {16, 4}},
                                         {"decoder.final_layernorm.weight", {4}},
                                         {"decoder.layers.3.self_attention.linear_qkv.weight", {12, 4}}}),
            (Keys{"decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_0.0_2.2",
                  "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_0.1_2.2",
                  "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.0_2.2",
                  "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.1_2.2",
                  "decoder.final_layernorm._extra_state/shard_0_1",
                  "decoder.layers.3.self_attention.linear_qkv._extra_state/shard_0_1",
                  "decoder.layers.3.self_attention.core_attention._extra_state/shard_0_1"}));
}

TEST(MegatronWriter, AShapeThatClaimsCountlessLayersIsRefused) {
  const auto refused =
      megatron::extra_state_keys({{"decoder.layers.mlp.linear_fc1.weight", {std::uint64_t{1} << 40, 1}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
}

TEST(MegatronWriter, FilesOfRanksAreNotLaidOutForCountlessLayers) {
  RawSource source({{.name = kWeight, .dtype = Dtype::bf16, .shape = {std::uint64_t{1} << 40, 0, 3}}});
  source.request.target = "out";
  const auto refused = megatron_legacy_format().writer->lay_out(source.request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("too many layers"), std::string::npos) << refused.error().message;
}

TEST(MegatronWriter, ObjectsAndArgumentsWithoutAPlaceAreNamed) {
  const auto made = [](auto content) {
    Value out;
    out.v = std::move(content);
    return out;
  };
  const auto boxed = [](Value value) { return std::make_shared<const Value>(std::move(value)); };
  Dict arguments;
  arguments.items.emplace_back(boxed(made(std::string("num_layers"))), boxed(made(std::int64_t{2})));
  arguments.items.emplace_back(boxed(made(std::string("backend"))),
                               boxed(made(Opaque{.global = "megatron.enums.Backend", .args = boxed(made(List{}))})));
  const NamedObject args{
      .name = "args",
      .value =
          made(Opaque{.global = "argparse.Namespace", .args = boxed(made(List{})), .state = boxed(made(arguments))})};
  for (const std::string format : {"megatron", "safetensors"}) {
    RawSource source({kStacked});
    source.map.format = format;
    source.request.objects = {args, {.name = "rng_state.0.np_rng_state", .value = made(std::int64_t{1})}};
    const Written written = write(source);
    const auto names = [&](std::string_view name) {
      return std::ranges::any_of(written.dropped,
                                 [&](const Finding& finding) { return finding.text.find(name) != std::string::npos; });
    };
    EXPECT_TRUE(names("rng_state.0.np_rng_state")) << format;
    EXPECT_TRUE(names("backend")) << format;
    EXPECT_FALSE(names("num_layers")) << format;
    EXPECT_TRUE(skips_state(written)) << format;
  }
}

}  // namespace
}  // namespace ckpt
