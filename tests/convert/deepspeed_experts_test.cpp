#include "convert/deepspeed/stages/experts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using deepspeed::expert_name;
using deepspeed::ranks_of_experts;
using test::TorchPatch;
using Ranks = std::vector<std::uint64_t>;

Result<Map> open_deepspeed(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_format().reader->open(**io, root, {});
}

/// A copy of the case with 4 experts of 2 expert-parallel ranks, 2 data-parallel ranks each.
class Copy {
 public:
  Copy() { fs::copy(golden_root("deepspeed/moe_ep2_dp4_zero2_bf16"), root(), fs::copy_options::recursive); }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string file(const std::string& name) const { return root() + "/global_step3/" + name; }
  std::string expert(int number) const {
    return file("layer_0_expert_" + std::to_string(number) + "_mp_rank_00_model_states.pt");
  }
  std::string optim(int rank) const {
    return file("bf16_zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt");
  }
  std::string model() const { return file("mp_rank_00_model_states.pt"); }

 private:
  TempDir directory_{memory_temp_dir()};
};

void expect_error(const std::string& root, Errc code, const std::string& file, const std::string& words) {
  const auto map = open_deepspeed(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_EQ(map.error().file, file) << map.error().message;
  EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
}

TEST(ExpertName, TellsTheLastExpertOfAName) {
  const auto name = expert_name("h.1.moe.deepspeed_moe.experts.deepspeed_experts.12.0.weight");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->number, 12u);
  EXPECT_EQ(name->with(3), "h.1.moe.deepspeed_moe.experts.deepspeed_experts.3.0.weight");
  EXPECT_TRUE(expert_name("deepspeed_moe.experts.deepspeed_experts.0.w").has_value());
  for (const char* other : {"h.1.moe.deepspeed_moe.gate.wg.weight", "deepspeed_moe.experts.deepspeed_experts.0",
                            "deepspeed_moe.experts.deepspeed_experts.x.w", "deepspeed_moe.experts.deepspeed_experts..w",
                            "my_deepspeed_moe.experts.deepspeed_experts.0.w",
                            "deepspeed_moe.experts.deepspeed_experts.99999999999.w", ""}) {
    EXPECT_FALSE(expert_name(other).has_value()) << other;
  }
}

TEST(RanksOfExperts, LieApartUnlessDataComesBeforeExperts) {
  EXPECT_EQ(ranks_of_experts(1, 2, 8, false), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(ranks_of_experts(1, 2, 8, true), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(ranks_of_experts(3, 4, 4, false), Ranks{3});
  EXPECT_EQ(ranks_of_experts(0, 1, 2, true), (Ranks{0, 1}));
}

TEST(DeepSpeedExperts, ParameterGroupsNameAllExpertsByGlobalNumbers) {
  const auto map = open_deepspeed(golden_root("deepspeed/moe_ep2_dp4_zero2_bf16"));
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const NamedObject* groups = nullptr;
  for (const NamedObject& object : map->objects) {
    EXPECT_EQ(object.name.find("param_groups@"), std::string::npos);  // all ranks say the same
    if (object.name == "optimizer.param_groups") groups = &object;
  }
  ASSERT_NE(groups, nullptr);
  const auto& experts = std::get<Dict>(std::get<List>(groups->value.v).items.at(1)->v);
  std::vector<std::string> names;
  for (const auto& [key, value] : experts.items) {
    if (std::get<std::string>(key->v) != "params") continue;
    for (const ValuePtr& name : std::get<List>(value->v).items) names.push_back(std::get<std::string>(name->v));
  }
  ASSERT_EQ(names.size(), 16u);
  EXPECT_EQ(names[0], "moe.deepspeed_moe.experts.deepspeed_experts.0.0.weight");
  EXPECT_EQ(names[15], "moe.deepspeed_moe.experts.deepspeed_experts.3.2.bias");
}

TEST(DeepSpeedExperts, ARankWithItsGroupsInAnotherOrderIsToldOfAndReadAsTheFirst) {
  const auto map = open_deepspeed(golden_root("deepspeed/moe_mixed_dp4_zero2_bf16"));
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_NE(map->findings[0].text.find("1 rank stores its groups of experts in a different order"), std::string::npos);
  for (const NamedObject& object : map->objects) EXPECT_EQ(object.name.find("param_groups@"), std::string::npos);
}

TEST(DeepSpeedExperts, AMissingExpertIsNamed) {
  const Copy copy;
  fs::remove(copy.expert(3));
  expect_error(copy.root(), Errc::incomplete, copy.expert(3),
               "1 file is missing: layer_0_expert_3_mp_rank_00_model_states.pt");
}

TEST(DeepSpeedExperts, AnExpertThatTheLayerDoesNotHaveIsOfAnotherSave) {
  const Copy copy;
  fs::copy(copy.expert(3), copy.expert(4));
  expect_error(copy.root(), Errc::corrupt, copy.expert(4), " to a save with other ranks, experts");
}

TEST(DeepSpeedExperts, AnExpertsFileCopiedOverAnothersIsCorrupt) {
  const Copy copy;
  fs::copy(copy.expert(0), copy.expert(2), fs::copy_options::overwrite_existing);
  expect_error(copy.root(), Errc::corrupt, copy.expert(2), "not of expert 2, whose file this is");
}

TEST(DeepSpeedExperts, ExpertsThatDoNotDivideByThoseOfARankAreCorrupt) {
  const Copy copy;
  TorchPatch(copy.model()).replace({"num_experts"}, "K\x04", "K\x03").write();
  fs::remove(copy.expert(3));
  expect_error(copy.root(), Errc::corrupt, copy.model(), "2 experts a rank, of 3");
}

TEST(DeepSpeedExperts, PartitionCountsThatContradictTheExpertsAreCorrupt) {
  for (const int rank : {0, 3}) {
    const Copy copy;
    TorchPatch(copy.optim(rank)).replace({"partition_count"}, "K\x04K\x02", "K\x04K\x04").write();
    expect_error(copy.root(), Errc::corrupt, copy.optim(rank), rank == 0 ? "parameter group 1" : "different saves");
  }
}

TEST(DeepSpeedExperts, AFileOfARankWithOtherExpertsIsFoundByWhatAllShare) {
  const Copy copy;
  fs::copy(copy.optim(2), copy.optim(1), fs::copy_options::overwrite_existing);
  expect_error(copy.root(), Errc::corrupt, copy.optim(1), "this is the part of rank 2, not of rank 1");
}

}  // namespace
}  // namespace ckpt
