#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using test::TorchPatch;

constexpr const char* kPipeline = "deepspeed/universal_from_pp2_dp2_zero1_fp32";
constexpr const char* kTensor = "deepspeed/universal_from_tp2_dp2_zero1_fp32";

Result<Map> open_universal(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_universal_format().reader->open(**io, root, {});
}

class UniversalSlices : public testing::TestWithParam<const char*> {};

TEST_P(UniversalSlices, EveryElementEqualsTheTruthAndWeightsArePutTogetherWhereTheyAre) {
  const GoldenCase golden = load_golden(GetParam());
  const auto map = open_universal(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  const bool sliced = std::string(GetParam()) == kTensor;
  std::size_t weights = 0;
  const auto expect_equal = [&](const std::string& name, const GoldenCase::Truth& truth) {
    const std::size_t index = find_tensor(*map, name);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.replicas_agree && gathered.crc_agrees);
  };
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string name = truth.key.substr(kind.size() + 1);
    expect_equal("optimizer.state." + name + "." + kind, truth);
    if (!sliced || kind != "master") continue;
    expect_equal(name, truth);  // of an fp32 run the weights are the masters
    ++weights;
  }
  EXPECT_EQ(map->tensors.size(), golden.truth.size() + weights);
  EXPECT_EQ(map->findings.size(), sliced ? 0u : 1u);  // of a pipeline the weights are left behind
  EXPECT_EQ(map->meta.world_size, 4u);
  const std::vector<std::pair<std::string, std::uint64_t>> mesh{
      {"dp", 2}, {"tp", (*golden.about)["parallel"]["tp"]}, {"pp", (*golden.about)["parallel"]["pp"]}, {"zero", 1}};
  EXPECT_EQ(map->meta.mesh, mesh);
}

TEST_P(UniversalSlices, AMissingModelFileIsNamed) {
  for (const char* rank : {"00", "01"}) {
    const TempDir directory(memory_temp_dir());
    const std::string root = directory.path() + "/ckpt";
    fs::copy(golden_root(GetParam()), root, fs::copy_options::recursive);
    const std::string tag = std::string(GetParam()) == kTensor ? "global_step2_universal" : "global_step3_universal";
    const std::string file = root + "/" + tag + "/mp_rank_" + rank + "_model_states.pt";
    fs::remove(file);
    const auto map = open_universal(root);
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::incomplete) << map.error().message;
    EXPECT_NE((map.error().message + map.error().file).find("mp_rank_" + std::string(rank)), std::string::npos)
        << map.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, UniversalSlices, testing::Values(kPipeline, kTensor),
                         [](const auto& param) { return std::string(param.param).substr(25, 3); });

constexpr const char* kStageThree = "deepspeed/universal_from_tp2_dp2_zero3_bf16";

TEST(UniversalSlicesOfStageThree, EveryElementEqualsTheTruth) {
  const GoldenCase golden = load_golden(kStageThree);
  const auto map = open_universal(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  std::size_t weights = 0;
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string name = truth.key.substr(kind.size() + 1);
    const std::size_t index = find_tensor(*map, kind == "param" ? name : "optimizer.state." + name + "." + kind);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    EXPECT_EQ(map->tensors[index].dtype, truth.dtype);
    if (kind == "param") {
      ++weights;
      continue;  // stored nowhere: cast from the masters, which are compared here
    }
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.crc_agrees);
  }
  EXPECT_EQ(map->tensors.size(), golden.truth.size());
  EXPECT_EQ(map->derived.size(), weights);
  const std::vector<std::pair<std::string, std::uint64_t>> mesh{{"dp", 2}, {"tp", 2}, {"pp", 1}, {"zero", 3}};
  EXPECT_EQ(map->meta.mesh, mesh);
}

TEST(UniversalSlicesOfStageThree, AMissingModelFileIsNamed) {
  for (const std::string rank : {"00", "01"}) {
    const TempDir directory(memory_temp_dir());
    const std::string root = directory.path() + "/ckpt";
    fs::copy(golden_root(kStageThree), root, fs::copy_options::recursive);
    fs::remove(root + "/global_step3_universal/zero_pp_rank_0_mp_rank_" + rank + "_model_states.pt");
    const auto map = open_universal(root);
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, Errc::incomplete) << map.error().message;
    EXPECT_NE(map.error().file.find("zero_pp_rank_0_mp_rank_" + rank), std::string::npos) << map.error().file;
  }
}

TEST(UniversalSlicesOfStageThree, FilesOfTwoSavesAreCorrupt) {
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  fs::copy(golden_root(kStageThree), root, fs::copy_options::recursive);
  const std::string folder = root + "/global_step3_universal/";
  fs::copy(folder + "zero_pp_rank_0_mp_rank_00_model_states.pt", folder + "mp_rank_00_model_states.pt");
  const auto map = open_universal(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt) << map.error().message;
}

TEST(UniversalSlicesBroken, ARuleThatDoesNotGiveTheMastersShapeIsCorrupt) {
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  fs::copy(golden_root(kTensor), root, fs::copy_options::recursive);
  for (const char* rank : {"00", "01"}) {
    TorchPatch(root + "/global_step2_universal/mp_rank_" + rank + "_model_states.pt")
        .replace({"tp_replicated_parameter_patterns"}, "^norm\\.weight$", "^xorm\\.weight$")
        .write();
  }
  const auto map = open_universal(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt) << map.error().message;
  EXPECT_EQ(map.error().tensor, "norm.weight");
}

}  // namespace
}  // namespace ckpt
