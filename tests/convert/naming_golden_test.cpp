// Genuine runs of Megatron-LM under the names of transformers, compared with what they saved.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "convert/open_source.hpp"
#include "engine/io/io.hpp"
#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

class NamingGolden : public testing::TestWithParam<const char*> {
 protected:
  void open() {
    golden_ = load_golden(GetParam());
    rules_.set_names({.to = MapRules::Side::hf});
    open_golden();
  }
  void open_golden() {
    auto source = open_source(
        *io_, golden_.root, "",
        {.metadata_limit = std::uint64_t{256} << 20, .rules = &rules_, .find_beside = true, .extras = true});
    ASSERT_TRUE(source) << source.error().message;
    source_ = *std::move(source);
  }
  std::string bytes(const std::string& name) const {
    const Gathered gathered = gather(source_.map, source_.root, find_tensor(source_.map, name));
    EXPECT_TRUE(gathered.complete && gathered.replicas_agree && gathered.crc_agrees) << name;
    return gathered.bytes;
  }
  /// Rows of a layer in the truth. A layer of `kind` has `rows` of them.
  std::string truth(const std::string& key, std::size_t layer, std::size_t layers, Extent rows,
                    std::size_t rows_of_layer) const {
    const auto found = std::ranges::find(golden_.truth, key, &GoldenCase::Truth::key);
    EXPECT_NE(found, golden_.truth.end()) << key;
    if (found == golden_.truth.end()) return {};
    const std::size_t of_layer = found->bytes.size() / layers;
    const std::size_t row = of_layer / rows_of_layer;
    return found->bytes.substr(layer * of_layer + rows.begin * row, rows.size() * row);
  }

  GoldenCase golden_;
  MapRules rules_;
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
  Source source_;
};

TEST_P(NamingGolden, WeightsAndStateAreThoseOfTheRun) {
  open();
  const std::string layers = "decoder.layers.";
  for (const std::string kind : {"param", "master", "exp_avg", "exp_avg_sq"}) {
    const auto named = [&](const std::string& name) {
      return kind == "param" ? name : "optimizer.state." + name + "." + kind;
    };
    for (std::size_t layer = 0; layer < 4; ++layer) {
      SCOPED_TRACE(kind + " of layer " + std::to_string(layer));
      const std::string model = "model.layers." + std::to_string(layer);
      const std::string key = kind + "/decoder.layers.";
      // 2 groups of 2 queries, a key and a value, each of 8 rows.
      const auto qkv = [&](std::uint64_t begin, std::uint64_t end) {
        return truth(key + "self_attention.linear_qkv.weight", layer, 4, {begin, end}, 64);
      };
      EXPECT_EQ(bytes(named(model + ".self_attn.q_proj.weight")), qkv(0, 16) + qkv(32, 48));
      EXPECT_EQ(bytes(named(model + ".self_attn.k_proj.weight")), qkv(16, 24) + qkv(48, 56));
      EXPECT_EQ(bytes(named(model + ".self_attn.v_proj.weight")), qkv(24, 32) + qkv(56, 64));
      const auto fc1 = [&](Extent rows) { return truth(key + "mlp.linear_fc1.weight", layer, 4, rows, 128); };
      EXPECT_EQ(bytes(named(model + ".mlp.gate_proj.weight")), fc1({0, 64}));
      EXPECT_EQ(bytes(named(model + ".mlp.up_proj.weight")), fc1({64, 128}));
      EXPECT_EQ(bytes(named(model + ".mlp.down_proj.weight")),
                truth(key + "mlp.linear_fc2.weight", layer, 4, {0, 32}, 32));
      EXPECT_EQ(bytes(named(model + ".post_attention_layernorm.weight")),
                truth(key + "mlp.linear_fc1.layer_norm_weight", layer, 4, {0, 1}, 1));
    }
    EXPECT_EQ(bytes(named("model.embed_tokens.weight")),
              truth(kind + "/embedding.word_embeddings.weight", 0, 1, {0, 100}, 112));
    EXPECT_EQ(bytes(named("lm_head.weight")), truth(kind + "/output_layer.weight", 0, 1, {0, 100}, 112));
  }
  const auto is_config = [](const Extra& extra) { return extra.path == "config.json"; };
  EXPECT_EQ(std::ranges::count_if(source_.map.extras, is_config), 1);
  const auto weights = [](const Tensor& tensor) { return tensor.role == Role::param; };
  EXPECT_EQ(std::ranges::count_if(source_.map.tensors, weights), 39);
}

/// A model that no profile of ours has: experts with a shared one without a gate.
constexpr const char* kOwnProfile = R"({"ckpt-map": 1, "profile": ["family mine", "architecture Mine",
  "include base", "include rms", "include attention", "include gated", "include moe",
  "scope decoder.layers.{l} = model.layers.{l}",
  "tensor .mlp.shared_experts.linear_fc1.weight [80, h] = glu(.mlp.shared.gate.weight, .mlp.shared.up.weight) when moe",
  "tensor .mlp.shared_experts.linear_fc2.weight [h, 40] = .mlp.shared.down.weight when moe"]})";

class ExpertsGolden : public NamingGolden {};

TEST_P(ExpertsGolden, ExpertsAreTakenApartByAProfileOfTheUsers) {
  golden_ = load_golden(GetParam());
  auto rules = MapRules::parse(kOwnProfile, "mine.json");
  ASSERT_TRUE(rules) << rules.error().message;
  rules_ = *std::move(rules);
  rules_.set_names({.to = MapRules::Side::hf, .family = "mine"});
  open_golden();
  if (HasFatalFailure()) return;
  for (const std::string kind : {"param", "master", "exp_avg"}) {
    for (std::size_t at = 0; at < 16; ++at) {  // 4 experts of each of 4 layers, whose rows follow each other
      const std::string expert = "model.layers." + std::to_string(at / 4) + ".mlp.experts." + std::to_string(at % 4);
      SCOPED_TRACE(kind + " " + expert);
      const auto named = [&](const std::string& name) {
        return kind == "param" ? expert + name : "optimizer.state." + expert + name + "." + kind;
      };
      const std::string key = kind + "/decoder.layers.mlp.experts.experts.linear_fc";
      EXPECT_EQ(bytes(named(".gate_proj.weight")), truth(key + "1.weight", at, 16, {0, 48}, 96));
      EXPECT_EQ(bytes(named(".up_proj.weight")), truth(key + "1.weight", at, 16, {48, 96}, 96));
      EXPECT_EQ(bytes(named(".down_proj.weight")), truth(key + "2.weight", at, 16, {0, 32}, 32));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, ExpertsGolden, testing::Values("megatron/legacy_moe_ep2_pp2_dp2"));

INSTANTIATE_TEST_SUITE_P(Runs, NamingGolden,
                         testing::Values("megatron/torch_dist_tp2_pp2_dp2", "megatron/legacy_tp2_pp2",
                                         "megatron/legacy_tp2_pp2_dp2_distopt"),
                         [](const auto& test) { return std::string(test.param).substr(9); });

}  // namespace
}  // namespace ckpt
