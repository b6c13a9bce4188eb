#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "format/naming/model_config.hpp"
#include "format/naming/profile.hpp"
#include "format/naming/segments.hpp"
#include "format/naming/settings.hpp"

namespace ckpt::naming {
namespace {

/// Settings that all profiles can use: 8 heads in 4 groups, experts in all layers but the first.
Settings settings() {
  Settings out;
  const auto set = [&](const std::string& name, std::uint64_t value) { out.set(name, {value}); };
  set("num_layers", 3);
  set("hidden_size", 12);
  set("ffn_hidden_size", 10);
  set("num_attention_heads", 8);
  set("num_query_groups", 4);
  set("kv_channels", 3);
  set("vocab_size", 7);
  set("max_position_embeddings", 5);
  set("num_experts", 2);
  set("moe_ffn_hidden_size", 6);
  set("moe_router_topk", 1);
  set("moe_shared_expert_intermediate_size", 12);
  set("q_lora_rank", 5);
  set("kv_lora_rank", 4);
  set("qk_head_dim", 2);
  set("qk_pos_emb_head_dim", 1);
  set("v_head_dim", 3);
  out.set("rotary_base", {std::uint64_t{10000}});
  out.set("layernorm_epsilon", {1e-5});
  out.set("untie_embeddings_and_output_weights", {true});
  out.set("moe_layer_freq", {json::Array{{std::uint64_t{0}}, {std::uint64_t{1}}, {std::uint64_t{1}}}});
  return out;
}

Profile parsed(const std::string& lines) {
  auto profile = parse_profile(lines, "p", profile_part);
  EXPECT_TRUE(profile) << profile.error().message;
  return profile ? *profile : Profile{};
}

std::string refusal(const std::string& lines) {
  const auto profile = parse_profile(lines, "p", profile_part);
  return profile ? "" : profile.error().message;
}

std::uint64_t element(const Shape& shape, const Shape& point) {
  return linear_index(Box::whole(shape), point);
}

/// The points of a box, in order.
std::vector<Shape> points(const Box& box) {
  std::vector<Shape> out;
  for (std::uint64_t i = 0; i < volume(box.size); ++i) {
    Shape point = box.offset;
    std::uint64_t rest = i;
    for (std::size_t d = point.size(); d-- > 0; rest /= box.size[d]) point[d] += rest % box.size[d];
    out.push_back(std::move(point));
  }
  return out;
}

TEST(Naming, AllProfilesAreValid) {
  std::set<std::string> families;
  for (const Profile& profile : profiles()) {
    families.insert(profile.family);
    EXPECT_FALSE(profile.architecture.empty() || profile.model_type.empty() || profile.summary.empty());
    EXPECT_EQ(find_profile(profile.family), &profile);
  }
  EXPECT_EQ(families, (std::set<std::string>{"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe",
                                             "deepseek_v2", "deepseek_v3", "nemotron", "gpt2"}));
}

TEST(Naming, RulesHoldEveryElementOfBothSidesOnce) {
  const Settings all = settings();
  for (const Profile& profile : profiles()) {
    for (const Rule& rule : profile.rules) {
      SCOPED_TRACE(profile.family + " " + rule.megatron);
      const auto cutting = cutting_of(rule, all);
      ASSERT_TRUE(cutting) << cutting.error().message;
      ASSERT_EQ(cutting->hf.size(), rule.hf.size());
      std::vector<std::size_t> megatron(volume(cutting->megatron));
      std::vector<std::vector<std::size_t>> hf;
      for (const Shape& shape : cutting->hf) hf.emplace_back(volume(shape));
      for (const Segment& segment : cutting->segments) {
        ASSERT_EQ(volume(segment.megatron.size), volume(segment.hf.size));
        for (const Shape& point : points(segment.megatron)) ++megatron[element(cutting->megatron, point)];
        for (const Shape& point : points(segment.hf)) ++hf[segment.tensor][element(cutting->hf[segment.tensor], point)];
      }
      const auto is_one = [](std::size_t count) { return count == 1; };
      EXPECT_TRUE(std::ranges::all_of(megatron, is_one));
      for (const auto& one : hf) EXPECT_TRUE(std::ranges::all_of(one, is_one));
    }
  }
}

TEST(Naming, QueriesKeysAndValuesAreGrouped) {
  const Profile profile =
      parsed("family f\ntensor qkv [(n + 2g) d] = qkv(q, k, v)\ntensor other [(n + 2g) d] = fused(a)");
  const auto cutting = cutting_of(profile.rules[0], settings());
  ASSERT_TRUE(cutting);
  EXPECT_EQ(cutting->hf, (std::vector<Shape>{{24}, {12}, {12}}));
  // Group 1 begins at row 12 with the queries of heads 2 and 3.
  const Segment& queries = cutting->segments[3];
  EXPECT_EQ(queries.tensor, 0U);
  EXPECT_EQ(queries.megatron, (Box{{12}, {6}}));
  EXPECT_EQ(queries.hf, (Box{{6}, {6}}));
  const Segment& key = cutting->segments[4];
  EXPECT_EQ(key.tensor, 1U);
  EXPECT_EQ(key.megatron, (Box{{18}, {3}}));
  EXPECT_EQ(key.hf, (Box{{3}, {3}}));
  const auto fused = cutting_of(profile.rules[1], settings());
  ASSERT_TRUE(fused);
  EXPECT_EQ(fused->segments[4].hf, (Box{{24 + 3}, {3}}));
}

TEST(Naming, HeadsThatGroupsDoNotDivideAreRefused) {
  const Profile profile = parsed("family f\ntensor qkv [(n + 2g) d] = qkv(q, k, v)");
  Settings all = settings();
  all.set("num_query_groups", {std::uint64_t{3}});
  const auto cutting = cutting_of(profile.rules[0], all);
  ASSERT_FALSE(cutting);
  EXPECT_NE(cutting.error().message.find("3 does not divide 8"), std::string::npos);
  all = Settings();
  EXPECT_EQ(cutting_of(profile.rules[0], all).error().code, Errc::not_found);
}

TEST(Naming, ExpressionsAreEvaluated) {
  const Settings all = settings();
  EXPECT_EQ(*evaluate("(n + 2g) d", all), 48U);
  EXPECT_EQ(*evaluate("h / n * 2",
                      [] {
                        Settings out;
                        out.set("hidden_size", {std::uint64_t{16}});
                        out.set("num_attention_heads", {std::uint64_t{8}});
                        return out;
                      }()),
            4U);
  EXPECT_EQ(*evaluate("2 moe_ffn_hidden_size - 1", all), 11U);
  for (const std::string& bad :
       std::vector<std::string>{"", "(", "h +", "h )", "$", "1 +* 2", std::string(100, '(') + "1"})
    EXPECT_EQ(evaluate(bad, all).error().code, Errc::usage) << bad;
  EXPECT_EQ(evaluate("h * 18446744073709551615", all).has_value(), false);
  EXPECT_EQ(evaluate("1 - h", all).error().code, Errc::refused);
  EXPECT_EQ(evaluate("nothing", all).error().message, "nothing");
}

TEST(Naming, TextsThatAreNoProfileAreRefusedWithTheirLine) {
  EXPECT_EQ(refusal("family f\ntensor a [h] = b\n"), "");
  EXPECT_EQ(refusal("tensor a [h] = b"), "p: line 1: no family");
  EXPECT_NE(refusal("family f").find("no tensor"), std::string::npos);
  EXPECT_NE(refusal("family f\n\nsome thing").find("line 3: unknown word 'some'"), std::string::npos);
  for (const std::string& bad : std::vector<std::string>{"tensor a = b",
                                                         "tensor a [h] = qkv(b)",
                                                         "tensor a [h] = glu(b, c, d)",
                                                         "tensor a.{l} [h] = b",
                                                         "tensor a.{l}.{e} [h] = b.{l}",
                                                         "tensor a.{e} [h] = b.{e}",
                                                         "tensor a [h] = t(b)",
                                                         "tensor a [h] = b c",
                                                         "tensor a [h] = b\ntensor c [h] = b",
                                                         "tensor a [] = b",
                                                         "config x",
                                                         "args x = 1",
                                                         "args x := {",
                                                         "scope a",
                                                         "include nothing",
                                                         "derive x",
                                                         "config a = quotient(b)",
                                                         "copy a",
                                                         "copy a = b",
                                                         "copy a.{l} = b, c"})
    EXPECT_NE(refusal("family f\n" + bad).find("line "), std::string::npos) << bad;
}

TEST(Naming, ConfigAndArgumentsSayTheSame) {
  for (const Profile& profile : profiles()) {
    SCOPED_TRACE(profile.family);
    const ReadSettings read = from_arguments(profile, to_arguments(profile, settings()));
    for (const Difference& one : read.differences) ADD_FAILURE() << one.name << " is " << one.text;
    const auto config = json::parse(to_config(profile, read.settings, "bfloat16"));
    ASSERT_TRUE(config);
    EXPECT_EQ(profile_for_config(profiles(), *config), &profile);
    EXPECT_TRUE(compare(profile, *config, read.settings).empty());
    const ReadSettings back = from_config(profile, *config);
    EXPECT_TRUE(back.differences.empty());
    for (const ConfigLine& line : profile.config) {
      if (line.hf.empty() || line.megatron.empty()) continue;
      const json::Value* before = read.settings.find(line.megatron.front());
      const json::Value* after = back.settings.find(line.megatron.front());
      if (before == nullptr) continue;
      ASSERT_NE(after, nullptr) << line.megatron.front();
      EXPECT_EQ(text_of(*before), text_of(*after));
    }
  }
}

TEST(Naming, WhatOneSideCannotSayIsADifference) {
  const Profile& llama = *find_profile("llama");
  Settings arguments = to_arguments(llama, settings());
  arguments.set("qk_l2_norm", {true});
  const auto read = from_arguments(llama, arguments);
  ASSERT_EQ(read.differences.size(), 1U);
  EXPECT_EQ(read.differences[0].name, "qk_l2_norm");
  EXPECT_EQ(profile_for_arguments(profiles(), arguments), nullptr);
  const auto config = json::parse(R"({"hidden_act": "gelu", "num_hidden_layers": 3})");
  const auto other = from_config(llama, *config);
  ASSERT_EQ(other.differences.size(), 1U);
  EXPECT_EQ(other.differences[0].name, "hidden_act");
  const auto layers = json::parse(R"({"num_hidden_layers": 4})");
  const auto compared = compare(llama, *layers, settings());
  ASSERT_EQ(compared.size(), 1U);
  EXPECT_EQ(compared[0].name, "num_hidden_layers");
}

TEST(Naming, TheScalingOfLlama3IsAnArgumentAndOthersAreDifferences) {
  const Profile& llama = *find_profile("llama");
  Settings arguments = to_arguments(llama, settings());
  arguments.set("use_rope_scaling", {true});
  arguments.set("rope_scaling_factor", {8.0});
  const auto config = json::parse(to_config(llama, arguments, ""));
  ASSERT_TRUE(config);
  ASSERT_NE(config->find("rope_scaling"), nullptr);
  const ReadSettings back = from_config(llama, *config);
  EXPECT_TRUE(back.differences.empty());
  EXPECT_TRUE(back.settings.is_set("use_rope_scaling"));
  EXPECT_TRUE(is_equal(*back.settings.find("rope_scaling_factor"), {8.0}));
  const auto yarn = json::parse(R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5.0}})");
  const ReadSettings other = from_config(llama, *yarn);
  ASSERT_EQ(other.differences.size(), 1U);
  EXPECT_FALSE(other.settings.is_set("use_rope_scaling"));
  const auto plain = json::parse(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})");
  EXPECT_TRUE(from_config(llama, *plain).differences.empty());
}

TEST(Naming, ArgumentsChooseTheProfile) {
  for (const Profile& profile : profiles()) {
    if (profile.family == "mistral") continue;  // the same model as a llama, in Megatron-LM
    Settings arguments = to_arguments(profile, settings());
    if (!std::ranges::any_of(profile.rules, &Rule::has_expert)) arguments.set("num_experts", {nullptr});
    const Profile* chosen = profile_for_arguments(profiles(), arguments);
    ASSERT_NE(chosen, nullptr) << profile.family;
    EXPECT_EQ(chosen->family, profile.family);
  }
}

}  // namespace
}  // namespace ckpt::naming
