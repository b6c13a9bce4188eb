#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Map golden_deepspeed(const std::string& name, std::shared_ptr<RankLayout> ranks = nullptr) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  auto source = open_source(**io, golden_root("deepspeed/" + name), "", {.ranks_apart = std::move(ranks)});
  EXPECT_TRUE(source.has_value()) << source.error().message;
  return source ? std::move(source->map) : Map{};
}

/// A request for all that a map holds.
WriteRequest request_of(const Map& map, TargetOptions options, std::shared_ptr<const RankLayout> ranks = nullptr) {
  WriteRequest out{.source = &map, .ranks = std::move(ranks), .aliases = map.aliases, .objects = map.objects};
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    out.tensors.push_back({i, map.tensors[i].name, map.tensors[i].dtype});
    if (map.tensors[i].slot == "step") out.scalars.emplace(i, 3.0);
  }
  out.options = std::move(options);
  out.target = "out";
  out.id = "00112233445566778899aabbccddeeff";
  out.source_format = map.format;
  return out;
}

std::vector<std::string> names_of_files(const Skeleton& skeleton) {
  std::vector<std::string> out;
  for (const TargetFile& file : skeleton.files) out.push_back(file.path);
  std::ranges::sort(out);
  return out;
}

std::string refusal(const WriteRequest& request) {
  const auto laid_out = deepspeed_format().writer->lay_out(request);
  return laid_out ? "" : laid_out.error().message + " | " + laid_out.error().hint;
}

TEST(DeepSpeedWriter, EveryStageHasItsFilesAndLatestIsWrittenLast) {
  const Map map = golden_deepspeed("zero2_bf16_dp4");
  const auto stage3 = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 3, .dp = 2}));
  ASSERT_TRUE(stage3.has_value()) << stage3.error().message;
  EXPECT_EQ(names_of_files(*stage3),
            (std::vector<std::string>{"global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                      "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                                      "global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt",
                                      "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt"}));
  const auto small = stage3->finish({});
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->back().path, "latest");
  EXPECT_EQ(small->back().bytes, "global_step3");
  const auto stage0 = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 0, .dp = 7, .tag = "now"}));
  ASSERT_TRUE(stage0.has_value()) << stage0.error().message;
  EXPECT_EQ(names_of_files(*stage0), std::vector<std::string>{"now/mp_rank_00_model_states.pt"});
}

TEST(DeepSpeedWriter, EqualRequestsGiveEqualFiles) {
  const Map map = golden_deepspeed("zero3_bf16_dp3_frozen");
  const auto a = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 1, .dp = 5}));
  const auto b = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 1, .dp = 5}));
  ASSERT_TRUE(a.has_value() && b.has_value());
  ASSERT_EQ(a->files.size(), b->files.size());
  for (std::size_t f = 0; f < a->files.size(); ++f) {
    ASSERT_EQ(a->files[f].placements.size(), b->files[f].placements.size());
    for (std::size_t p = 0; p < a->files[f].placements.size(); ++p)
      EXPECT_EQ(a->files[f].placements[p].literal, b->files[f].placements[p].literal);
  }
}

TEST(DeepSpeedWriter, WhatCannotBeHeldIsRefusedByName) {
  const Map map = golden_deepspeed("zero0_bf16_dp1_groups_frozen");
  WriteRequest steps = request_of(map, {.zero_stage = 2, .dp = 2});
  const std::size_t late = find_tensor(map, "optimizer.state.h.0.fc.weight.step");
  steps.scalars[static_cast<std::uint32_t>(late)] = 4;
  EXPECT_EQ(
      refusal(steps),
      "out: convert: h.0.fc.weight: its optimizer step is 4, that of wte.weight in the same parameter group is 3: "
      "ZeRO keeps one a group | --zero-stage 0    keeps one a parameter");
  steps.options.zero_stage = 0;
  EXPECT_EQ(refusal(steps), "");

  WriteRequest weights = request_of(map, {.zero_stage = 2, .dp = 2});
  std::erase_if(weights.tensors, [&](const Selected& s) { return map.tensors[s.tensor].role == Role::slot; });
  weights.objects.clear();
  EXPECT_EQ(refusal(weights),
            "out: convert: the source holds no optimizer state | --fresh-optimizer    starts with a new optimizer");
  weights.options.fresh_optimizer = true;
  EXPECT_EQ(refusal(weights), "");

  Map other = map;
  for (Tensor& tensor : other.tensors) {
    if (tensor.name == "optimizer.state.wte.weight.exp_avg_sq") tensor.shape = {31};
  }
  EXPECT_NE(refusal(request_of(other, {.zero_stage = 3, .dp = 2}))
                .find("optimizer.state.wte.weight.exp_avg_sq: optimizer state of another shape or type"),
            std::string::npos);

  for (const char* tag : {" a", "a ", "a\tb", "a\n", "latest", "latest_universal", "ckpt.id"}) {
    EXPECT_NE(refusal(request_of(map, {.zero_stage = 1, .dp = 2, .tag = tag})).find("cannot be a tag"),
              std::string::npos)
        << tag;
  }
  EXPECT_NE(refusal(request_of(map, {.zero_stage = 1, .dp = 2, .tag = std::string(300, 'x')})).find("it is too long"),
            std::string::npos);
  EXPECT_EQ(refusal(request_of(map, {.zero_stage = 1, .dp = 2, .tag = "a b \u00fc"})), "");

  Map torch = map;
  torch.meta.framework = "torch";
  torch.meta.mesh.clear();
  EXPECT_NE(refusal(request_of(torch, {.dp = 2})).find("needs --zero-stage"), std::string::npos);
  EXPECT_NE(refusal(request_of(torch, {.zero_stage = 1})).find("needs --dp"), std::string::npos);
}

TEST(DeepSpeedWriter, ModelParallelRanksKeepTheirFilesAtAnotherSize) {
  auto ranks = std::make_shared<RankLayout>();
  const Map tensor = golden_deepspeed("tp2_dp2_zero1_fp32", ranks);
  const auto wider = deepspeed_format().writer->lay_out(request_of(tensor, {.zero_stage = 3, .dp = 1}, ranks));
  ASSERT_TRUE(wider.has_value()) << wider.error().message;
  EXPECT_EQ(names_of_files(*wider),
            (std::vector<std::string>{"global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt",
                                      "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                      "global_step2/zero_pp_rank_0_mp_rank_01_model_states.pt",
                                      "global_step2/zero_pp_rank_0_mp_rank_01_optim_states.pt"}));
  ranks = std::make_shared<RankLayout>();
  const Map pipeline = golden_deepspeed("pp2_dp2_zero1_fp32", ranks);
  const auto longer = deepspeed_format().writer->lay_out(request_of(pipeline, {.zero_stage = 1, .dp = 1}, ranks));
  ASSERT_TRUE(longer.has_value()) << longer.error().message;
  EXPECT_EQ(names_of_files(*longer),
            (std::vector<std::string>{
                "global_step3/layer_00-model_states.pt", "global_step3/layer_01-model_states.pt",
                "global_step3/layer_02-model_states.pt", "global_step3/layer_03-model_states.pt",
                "global_step3/layer_04-model_states.pt", "global_step3/mp_rank_00_model_states.pt",
                "global_step3/mp_rank_01_model_states.pt", "global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                "global_step3/zero_pp_rank_0_mp_rank_01_optim_states.pt"}));
  EXPECT_EQ(refusal(request_of(pipeline, {.zero_stage = 2, .dp = 1}, ranks)),
            "out: convert: DeepSpeed does not support pipelines at ZeRO stage 2 | --zero-stage 1    is the nearest");
  ranks = std::make_shared<RankLayout>();
  const Map half = golden_deepspeed("pp2_dp2_zero0_bf16", ranks);
  EXPECT_EQ(refusal(request_of(half, {.zero_stage = 1, .dp = 4}, ranks)), "");
  EXPECT_NE(refusal(request_of(half, {.dp = 4}, ranks)).find("--zero-stage 1    is the nearest"), std::string::npos);
}

TEST(DeepSpeedWriter, ModelParallelRunsAreRefusedByNameOnceTheirRanksAreJoined) {
  const Map tensor = golden_deepspeed("tp2_dp2_zero1_fp32");
  EXPECT_NE(refusal(request_of(tensor, {.zero_stage = 1, .dp = 3})).find("2 tensor-parallel ranks"), std::string::npos);
  const Map pipeline = golden_deepspeed("pp2_dp2_zero1_fp32");
  EXPECT_NE(refusal(request_of(pipeline, {.zero_stage = 1, .dp = 3})).find("2 pipeline-parallel ranks"),
            std::string::npos);
}

TEST(DeepSpeedWriter, ExpertsAreDividedAnewWhereTheirNumberAllowsIt) {
  const Map map = golden_deepspeed("moe_ep2_dp4_zero2_bf16");
  const auto wider = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 1, .dp = 4, .ep = 4}));
  ASSERT_TRUE(wider.has_value()) << wider.error().message;
  const auto names = names_of_files(*wider);
  for (const std::string expert : {"0", "1", "2", "3"})
    EXPECT_EQ(std::ranges::count(names, "global_step3/layer_0_expert_" + expert + "_mp_rank_00_model_states.pt"), 1);
  EXPECT_EQ(names.size(), 9u);
  const auto alone = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 0, .dp = 2, .ep = 2}));
  ASSERT_TRUE(alone.has_value()) << alone.error().message;
  EXPECT_EQ(std::ranges::count(names_of_files(*alone), "global_step3/expp_rank_1_mp_rank_00_optim_states.pt"), 1);
  EXPECT_NE(refusal(request_of(map, {.zero_stage = 1, .dp = 6, .ep = 3}))
                .find("4 experts cannot be divided among 3 expert-parallel ranks | --ep 2    is the nearest"),
            std::string::npos);
  EXPECT_NE(
      refusal(request_of(map, {.zero_stage = 1, .dp = 3}))
          .find("3 data-parallel ranks cannot be divided among 2 expert-parallel ranks | --ep 1    is the nearest"),
      std::string::npos);
  EXPECT_NE(refusal(request_of(map, {.zero_stage = 3, .dp = 4})).find("--zero-stage 2    is the nearest"),
            std::string::npos);
  const Map mixed = golden_deepspeed("moe_mixed_dp4_zero2_bf16");
  EXPECT_EQ(refusal(request_of(mixed, {.zero_stage = 1, .dp = 8})), "");
  EXPECT_NE(refusal(request_of(mixed, {.zero_stage = 1, .dp = 8, .ep = 2})).find("omit --ep"), std::string::npos);
  const Map dense = golden_deepspeed("zero2_bf16_dp4");
  EXPECT_NE(refusal(request_of(dense, {.zero_stage = 1, .dp = 4, .ep = 2})).find("the source has no experts"),
            std::string::npos);
}

/// The value with each text that begins with `begin` replaced.
ValuePtr with_text(const Value& value, std::string_view begin, const std::string& text) {
  Value out = value;
  if (auto* own = std::get_if<std::string>(&out.v); own != nullptr && own->starts_with(begin)) *own = text;
  if (auto* list = std::get_if<List>(&out.v)) {
    for (ValuePtr& item : list->items) item = with_text(*item, begin, text);
  }
  if (auto* dict = std::get_if<Dict>(&out.v)) {
    for (auto& [key, item] : dict->items) item = with_text(*item, begin, text);
  }
  return std::make_shared<Value>(std::move(out));
}

TEST(DeepSpeedWriter, AnExpertGroupWhoseNameGivesNoSizeIsRefused) {
  const Map sound = golden_deepspeed("moe_ep2_dp4_zero2_bf16");
  for (const std::string name : {"ep_size_", "ep_size_0", "ep_size_2x", "ep_size_99999999999999999999"}) {
    Map map = sound;
    for (NamedObject& object : map.objects) object.value = *with_text(object.value, "ep_size_", name);
    EXPECT_NE(refusal(request_of(map, {.zero_stage = 1, .dp = 4})).find("named '" + name + "', which gives no size"),
              std::string::npos);
  }
}

/// The classes of DeepSpeed's that the pickles of a target's files name.
std::set<std::string> classes_in(const Skeleton& skeleton) {
  constexpr std::string_view kGlobal = "cdeepspeed.";
  std::set<std::string> out;
  for (const TargetFile& file : skeleton.files) {
    for (const Placement& placement : file.placements) {
      const std::string& bytes = placement.literal;
      for (std::size_t at = bytes.find(kGlobal); at != std::string::npos; at = bytes.find(kGlobal, at + 1)) {
        const std::size_t name = bytes.find('\n', at) + 1;
        out.insert(bytes.substr(name, bytes.find('\n', name) - name));
      }
    }
  }
  return out;
}

TEST(DeepSpeedWriter, OnlyScalersAndFragmentsAreObjectsOfDeepSpeedsClasses) {
  using Classes = std::set<std::string>;
  const Map map = golden_deepspeed("zero2_fp32_dp3_frozen");
  const auto stage2 = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 2, .dp = 2}));
  ASSERT_TRUE(stage2.has_value()) << stage2.error().message;
  EXPECT_EQ(classes_in(*stage2), Classes{"fragment_address"});
  const auto stage3 = deepspeed_format().writer->lay_out(request_of(map, {.zero_stage = 3, .dp = 1}));
  ASSERT_TRUE(stage3.has_value()) << stage3.error().message;
  EXPECT_EQ(classes_in(*stage3), Classes{"LossScaler"});
  const Map half = golden_deepspeed("zero1_fp16_dp2");
  const auto scaled = deepspeed_format().writer->lay_out(request_of(half, {.zero_stage = 1, .dp = 1}));
  ASSERT_TRUE(scaled.has_value()) << scaled.error().message;
  EXPECT_EQ(classes_in(*scaled), (Classes{"DynamicLossScaler", "fragment_address"}));
}

}  // namespace
}  // namespace ckpt
