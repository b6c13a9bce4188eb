#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/formats.hpp"
#include "convert/open_source.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

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
  EXPECT_EQ(refusal(steps),
            "out: h.0.fc.weight: its optimizer step is 4, that of wte.weight in the same parameter group is 3: "
            "ZeRO keeps one per group | --zero-stage 0    keeps one per parameter");
  steps.options.zero_stage = 0;
  EXPECT_EQ(refusal(steps), "");

  WriteRequest weights = request_of(map, {.zero_stage = 2, .dp = 2});
  std::erase_if(weights.tensors, [&](const Selected& s) { return map.tensors[s.tensor].role == Role::slot; });
  weights.objects.clear();
  EXPECT_EQ(refusal(weights),
            "out: the source holds no optimizer state | --fresh-optimizer    starts with a new optimizer");
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

TEST(DeepSpeedWriter, NumbersOfEachParameterBecomeThoseOfItsGroup) {
  Map map = golden_deepspeed("zero0_bf16_dp1_groups_frozen");
  for (Tensor& tensor : map.tensors) {
    if (tensor.slot != "exp_avg_sq") continue;
    tensor.slot = "mu_product";
    tensor.shape = {};
  }
  WriteRequest nadam = request_of(map, {.zero_stage = 2, .dp = 2});
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    if (map.tensors[i].slot == "mu_product") nadam.scalars.emplace(i, 0.25);
  }
  EXPECT_EQ(refusal(nadam), "");
  const std::size_t late = find_tensor(map, "optimizer.state.h.0.fc.weight.exp_avg_sq");
  nadam.scalars[static_cast<std::uint32_t>(late)] = 0.5;
  EXPECT_EQ(refusal(nadam),
            "out: h.0.fc.weight: mu_product of its optimizer state differs from that of wte.weight in the same "
            "parameter group: ZeRO keeps one per group | --zero-stage 0    keeps one per parameter");
  nadam.options.zero_stage = 0;
  EXPECT_EQ(refusal(nadam), "");
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
            "out: DeepSpeed does not support pipelines at ZeRO stage 2 | --zero-stage 1    is the nearest");
  ranks = std::make_shared<RankLayout>();
  const Map half = golden_deepspeed("pp2_dp2_zero0_bf16", ranks);
  EXPECT_EQ(refusal(request_of(half, {.zero_stage = 1, .dp = 4}, ranks)), "");
  EXPECT_EQ(refusal(request_of(half, {.dp = 4}, ranks)),
            "out: DeepSpeed loads no optimizer state into a bf16 pipeline at ZeRO stage 0 | --zero-stage 1    "
            "is the nearest");
}

TEST(DeepSpeedWriter, ExpertsOfModelParallelRanksKeepTheirFilesAndAreDividedAnew) {
  auto ranks = std::make_shared<RankLayout>();
  const Map slices = golden_deepspeed("moe_ep2_tp2_dp4_zero2_bf16_slices", ranks);
  const auto wider = deepspeed_format().writer->lay_out(request_of(slices, {.zero_stage = 0, .dp = 4, .ep = 4}, ranks));
  ASSERT_TRUE(wider.has_value()) << wider.error().message;
  std::vector<std::string> names{"global_step3/mp_rank_00_model_states.pt", "global_step3/mp_rank_01_model_states.pt"};
  for (const std::string rank : {"00", "01"}) {
    for (const std::string expert : {"0", "1", "2", "3"}) {
      names.push_back("global_step3/layer_0_expert_" + expert + "_mp_rank_" + rank + "_model_states.pt");
      names.push_back("global_step3/expp_rank_" + expert + "_mp_rank_" + rank + "_optim_states.pt");
    }
  }
  std::ranges::sort(names);
  EXPECT_EQ(names_of_files(*wider), names);
  ranks = std::make_shared<RankLayout>();
  const Map pipeline = golden_deepspeed("moe_ep2_pp2_dp2_zero1_fp32", ranks);
  const auto longer = deepspeed_format().writer->lay_out(request_of(pipeline, {.dp = 2, .ep = 1}, ranks));
  ASSERT_TRUE(longer.has_value()) << longer.error().message;
  EXPECT_EQ(longer->files.size(), 2u * (1 + 2 + 4));  // model, optimizers, experts: no layer files
  EXPECT_NE(refusal(request_of(pipeline, {.zero_stage = 2, .dp = 2}, ranks)).find("--zero-stage 1    is the nearest"),
            std::string::npos);
}

TEST(DeepSpeedWriter, ExpertsThatModelParallelRanksHaveForThemselvesAreRefusedByName) {
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  for (const auto& [name, words] :
       {std::pair{"moe_ep4_tp2_dp4_zero1_fp32", "experts that each tensor-parallel rank has for itself"},
        std::pair{"moe_ep1_pp2_dp2_zero0_fp16", "experts of model-parallel ranks without ZeRO"}}) {
    const auto source = open_source(**io, golden_root("deepspeed/" + std::string(name)), "",
                                    {.ranks_apart = std::make_shared<RankLayout>()});
    ASSERT_FALSE(source.has_value()) << name;
    EXPECT_EQ(source.error().code, Errc::unsupported);
    EXPECT_NE(source.error().message.find(words), std::string::npos) << source.error().message;
    EXPECT_EQ(source.error().hint, "use --to ckpt or --to safetensors");
  }
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  std::filesystem::copy(golden_root("deepspeed/moe_ep2_pp2_dp2_zero1_fp32"), root,
                        std::filesystem::copy_options::recursive);
  const std::string layer = "/global_step3/layer_02-model_states.pt";
  std::filesystem::copy(golden_root("deepspeed/pp2_dp2_zero1_fp32") + layer, root + layer);
  const auto mixed = open_source(**io, root, "", {.ranks_apart = std::make_shared<RankLayout>()});
  ASSERT_FALSE(mixed.has_value());
  EXPECT_NE(mixed.error().message.find("a pipeline with experts in some of its stages only"), std::string::npos);
}

TEST(DeepSpeedWriter, AUniversalDirectoryForStageThreeOfOldVersionsIsAskedFor) {
  const auto notes = [](const WriteRequest& request) {
    const auto laid_out = deepspeed_universal_format().writer->lay_out(request);
    EXPECT_TRUE(laid_out.has_value()) << laid_out.error().message;
    std::string out;
    for (const Finding& note : laid_out->dropped) out += note.text + "\n";
    return out;
  };
  const Map map = golden_deepspeed("zero2_bf16_dp4");
  EXPECT_NE(notes(request_of(map, {})).find("older than 0.19 cannot load this directory at ZeRO stage 3"),
            std::string::npos);
  EXPECT_EQ(notes(request_of(map, {.zero_stage = 3})).find("0.19"), std::string::npos);

  const Map tensor = golden_deepspeed("tp2_dp2_zero1_fp32");
  EXPECT_EQ(notes(request_of(tensor, {})).find("0.19"), std::string::npos);  // no stage 3 loads these in any version
  const auto refused = deepspeed_universal_format().writer->lay_out(request_of(tensor, {.zero_stage = 3}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message + " | " + refused.error().hint,
            "out: DeepSpeed cannot load a universal directory of a tensor- or pipeline-parallel run at stage 3 | "
            "--zero-stage 2    writes it for stages 1 and 2");
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
  for (const std::uint64_t stage : {0u, 1u, 2u}) {
    const std::string refused = refusal(request_of(mixed, {.zero_stage = stage, .dp = 8}));
    EXPECT_NE(refused.find("deepspeed_experts.: 2, "), std::string::npos) << refused;
    EXPECT_NE(refused.find("deepspeed_experts.: 4)"), std::string::npos) << refused;
    EXPECT_NE(refused.find("into another | --ep 4    gives all layers one size"), std::string::npos) << refused;
  }
  const Map dense = golden_deepspeed("zero2_bf16_dp4");
  EXPECT_NE(refusal(request_of(dense, {.zero_stage = 1, .dp = 4, .ep = 2})).find("the source has no experts"),
            std::string::npos);
}

/// Names of parameters in a group of experts, by the group's name.
std::vector<std::pair<std::string, std::vector<std::string>>> expert_groups(const Map& map) {
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  for (const NamedObject& object : map.objects) {
    if (object.name != "optimizer.param_groups") continue;
    for (const ValuePtr& group : std::get<List>(object.value.v).items) {
      std::string name;
      std::vector<std::string> members;
      for (const auto& [key, value] : std::get<Dict>(group->v).items) {
        const std::string& text = std::get<std::string>(key->v);
        if (text == "name") name = std::get<std::string>(value->v);
        if (text != "params") continue;
        for (const ValuePtr& member : std::get<List>(value->v).items)
          members.push_back(std::get<std::string>(member->v));
      }
      if (name.starts_with("ep_size_")) out.emplace_back(std::move(name), std::move(members));
    }
  }
  return out;
}

TEST(DeepSpeedWriter, LayersOfSeveralExpertParallelSizesGetTheOneThatIsAskedFor) {
  const Map mixed = golden_deepspeed("moe_mixed_dp4_zero2_bf16");
  ASSERT_EQ(expert_groups(mixed).size(), 2u);
  for (const std::uint64_t ep : {1u, 2u, 4u}) {
    const auto laid_out = deepspeed_format().writer->lay_out(request_of(mixed, {.zero_stage = 1, .dp = 4, .ep = ep}));
    ASSERT_TRUE(laid_out.has_value()) << laid_out.error().message;
    EXPECT_EQ(laid_out->files.size(), 8u + 1 + 4);
  }
  Map other = mixed;
  for (NamedObject& object : other.objects) {
    if (object.name != "optimizer.param_groups") continue;
    List groups = std::get<List>(object.value.v);
    Dict last = std::get<Dict>(groups.items.back()->v);
    for (auto& [key, value] : last.items) {
      if (std::get<std::string>(key->v) == "lr") value = std::make_shared<Value>(Value{0.5});
    }
    groups.items.back() = std::make_shared<Value>(Value{std::move(last)});
    object.value.v = std::move(groups);
  }
  // Groups of other options stay apart, each of one size.
  EXPECT_EQ(refusal(request_of(other, {.zero_stage = 1, .dp = 4, .ep = 2})), "");
}

/// A map of weights alone.
Map weights_of(std::vector<Tensor> tensors) {
  Map map;
  map.format = "safetensors";
  map.tensors = std::move(tensors);
  return map;
}

TEST(DeepSpeedWriter, RanksAndStagesThatASourceClaimsAreBounded) {
  Map map = golden_deepspeed("zero2_bf16_dp4");
  const auto claims = [&](std::vector<std::pair<std::string, std::uint64_t>> mesh) { map.meta.mesh = std::move(mesh); };
  claims({{"dp", 1u << 30}, {"zero", 1}});
  EXPECT_NE(refusal(request_of(map, {})).find("1073741824 data-parallel ranks: at most 65536 are written | --dp N"),
            std::string::npos);
  claims({{"dp", 2}, {"zero", 4}});
  EXPECT_NE(refusal(request_of(map, {})).find("DeepSpeed has no ZeRO stage 4 | --zero-stage N"), std::string::npos);
  for (const std::uint64_t pp : {std::uint64_t{1} << 20, std::uint64_t{1} << 63}) {
    claims({{"dp", 2}, {"pp", pp}});
    const auto laid_out = deepspeed_universal_format().writer->lay_out(request_of(map, {}));
    ASSERT_FALSE(laid_out.has_value());
    EXPECT_NE(laid_out.error().message.find("pipeline-parallel ranks: at most 65536"), std::string::npos);
  }
}

TEST(DeepSpeedWriter, NamesThatNoModuleHasAreRefusedFirst) {
  for (const std::string name : {"", ".", "a.", ".a", "a..b"}) {
    const Map map = weights_of({{.name = "w", .shape = {4}}, {.name = name, .shape = {4}}});
    for (const std::uint64_t stage : {0u, 3u}) {
      EXPECT_EQ(refusal(request_of(map, {.zero_stage = stage, .dp = 1, .fresh_optimizer = true})),
                "out: '" + name +
                    "': no module of torch has a parameter or buffer with an empty part in its name | --map FILE    "
                    "gives it another name");
    }
  }
}

TEST(DeepSpeedWriter, TypesThatFlatFilesCannotHoldAreRefused) {
  const auto refused = [](Tensor odd, std::uint64_t stage) {
    odd.name = "odd";
    Map map = weights_of({{.name = "w", .shape = {4}}, std::move(odd)});
    map.module_order = true;
    WriteRequest request = request_of(map, {.zero_stage = stage, .dp = 2, .fresh_optimizer = true});
    return refusal(request);
  };
  EXPECT_NE(refused({.dtype = Dtype::f6_e2m3, .shape = {4}}, 1).find("odd: torch has no type for F6_E2M3"),
            std::string::npos);
  EXPECT_NE(refused({.dtype = Dtype::f4, .shape = {2, 3}}, 2).find("the last dimension is odd"), std::string::npos);
  EXPECT_EQ(refused({.dtype = Dtype::f4, .shape = {2, 4}}, 2), "");
  EXPECT_NE(refused({.dtype = Dtype::f64, .shape = {4, 2}, .true_dtype = "complex128"}, 1)
                .find("odd: a trained parameter of complex numbers"),
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
  const Map early = golden_deepspeed("zero2_fp16_dp2_v07");
  const auto of_07 = deepspeed_format().writer->lay_out(request_of(early, {.zero_stage = 1, .dp = 1}));
  ASSERT_TRUE(of_07.has_value()) << of_07.error().message;
  EXPECT_EQ(classes_in(*of_07), (Classes{"DynamicLossScaler", "fragment_address"}));
}

}  // namespace
}  // namespace ckpt
