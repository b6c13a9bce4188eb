// Files of ranks of Megatron-LM, written for jobs of other sizes than the source's, and read again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

struct Recut {
  std::string name;  ///< of the test
  std::string golden;
  TargetOptions options{};
  std::vector<std::string> folders{};  ///< of ranks, some of them
  std::uint64_t vocabulary = 99;       ///< of the run, without padding
};
void PrintTo(const Recut& recut, std::ostream* out) {
  *out << recut.name;
}

std::vector<Recut> recuts() {
  const std::string dist = "torch_dist_tp2_pp2_dp2";
  const std::string numbered = "legacy_tp2_pp2";
  const std::string moe = "legacy_moe_ep2_pp2_dp2";
  const std::string predicting = "torch_dist_mtp_tp2_pp2";
  return {
      {.name = "SameSize", .golden = dist, .folders = {"mp_rank_00_000", "mp_rank_01_001"}},
      {.name = "OneRank", .golden = dist, .options = {.tp = 1, .pp = 1}, .folders = {"mp_rank_00"}},
      {.name = "Tensor4", .golden = dist, .options = {.tp = 4, .pp = 1}, .folders = {"mp_rank_03"}},
      {.name = "Pipeline4", .golden = dist, .options = {.tp = 1, .pp = 4}, .folders = {"mp_rank_00_003"}},
      {.name = "Interleaved", .golden = dist, .options = {.pp = 2, .vpp = 2}, .folders = {"mp_rank_01_001"}},
      {.name = "UnevenStages",
       .golden = dist,
       .options = {.pp = 3, .decoder_first = 1, .decoder_last = 1},
       .folders = {"mp_rank_01_002"}},
      {.name = "Buckets",
       .golden = "torch_dist_buckets_tp2_dp2",
       .options = {.tp = 1, .pp = 2},
       .folders = {"mp_rank_00_001"}},
      {.name = "BucketsOfExperts",
       .golden = "torch_dist_buckets_tp2_pp2_ep2",
       .options = {.ep = 4, .tp = 1, .pp = 1},
       .folders = {"mp_rank_00_003"}},
      {.name = "NumberedOneRank", .golden = numbered, .options = {.tp = 1, .pp = 1}, .folders = {"mp_rank_00"}},
      {.name = "NumberedPipeline4", .golden = numbered, .options = {.tp = 4, .pp = 4}, .folders = {"mp_rank_03_003"}},
      {.name = "NumberedInterleaved", .golden = numbered, .options = {.vpp = 2}, .folders = {"mp_rank_00_001"}},
      {.name = "ExpertsTogether", .golden = moe, .options = {.ep = 1, .pp = 1}, .folders = {"mp_rank_00"}},
      {.name = "Experts4", .golden = moe, .options = {.ep = 4}, .folders = {"mp_rank_00_001_003"}},
      {.name = "ExpertsTensor2", .golden = moe, .options = {.ep = 2, .tp = 2}, .folders = {"mp_rank_01_001_001"}},
      {.name = "PredictionOneStage",
       .golden = predicting,
       .options = {.tp = 2, .pp = 1},
       .folders = {"mp_rank_01"},
       .vocabulary = 50},
      {.name = "PredictionPipeline2",
       .golden = predicting,
       .options = {.tp = 1, .pp = 2},
       .folders = {"mp_rank_00_001"},
       .vocabulary = 50}};
}

class MegatronRecut : public testing::TestWithParam<Recut> {
 protected:
  Result<Source> open(const std::string& path) {
    return open_source(*io_, path, "", {.metadata_limit = std::uint64_t{256} << 20});
  }
  Result<ConvertReport> convert_to(const std::string& source, const TargetOptions& options) {
    const auto comm = Comm::solo();
    Session session{.io = *io_, .comm = *comm, .memory_bytes = std::uint64_t{1} << 28};
    ConvertRequest request;
    request.source = source;
    request.target = target_;
    request.to = "megatron-legacy";
    request.options = options;
    return convert(session, request);
  }

  TempDir directory_;
  std::string target_ = directory_.path() + "/run";
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
};

/// The rows of the vocabulary that the model uses: how many follow depends on the ranks.
std::string used_rows(const Tensor& tensor, std::string bytes, std::uint64_t vocabulary) {
  const bool is_vocabulary =
      tensor.name.find("word_embeddings") != std::string::npos || tensor.name.find("output_layer") != std::string::npos;
  if (is_vocabulary && tensor.shape.size() == 2) bytes.resize(bytes.size() / tensor.shape[0] * vocabulary);
  return bytes;
}

TEST_P(MegatronRecut, EveryTensorComesBack) {
  const std::string root = golden_root("megatron/" + GetParam().golden);
  const auto report = convert_to(root, GetParam().options);
  ASSERT_TRUE(report) << report.error().message;
  for (const std::string& folder : GetParam().folders)
    EXPECT_TRUE(std::filesystem::exists(target_ + "/iter_0000002/" + folder + "/model_optim_rng.pt")) << folder;
  const auto before = open(root);
  const auto after = open(target_);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->format->name, "megatron-legacy");
  EXPECT_EQ(after->map.meta.step, 2U);
  for (const Finding& finding : after->map.findings)
    EXPECT_EQ(finding.text.find("of a form that is not known"), std::string::npos) << finding.text;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < before->map.tensors.size(); ++i) {
    const Tensor& tensor = before->map.tensors[i];
    // Random states are left out; the numbers of steps are the parameter groups' in one form, and the weights' in the other.
    if (tensor.role == Role::blob || tensor.name.starts_with("mp_rank_") || tensor.slot == "step") continue;
    const auto found = std::ranges::find(after->map.tensors, tensor.name, &Tensor::name);
    ASSERT_NE(found, after->map.tensors.end()) << tensor.name;
    const Gathered gathered =
        gather(after->map, after->root, static_cast<std::size_t>(found - after->map.tensors.begin()));
    EXPECT_TRUE(gathered.complete && gathered.replicas_agree && gathered.crc_agrees) << tensor.name;
    const std::uint64_t rows = GetParam().vocabulary;
    EXPECT_TRUE(used_rows(*found, gathered.bytes, rows) ==
                used_rows(tensor, gather(before->map, before->root, i).bytes, rows))
        << tensor.name;
    ++compared;
  }
  EXPECT_GE(compared, 36U);
}
INSTANTIATE_TEST_SUITE_P(Sizes, MegatronRecut, testing::ValuesIn(recuts()),
                         [](const auto& each) { return each.param.name; });

struct Refused {
  std::string name;
  std::string golden;
  TargetOptions options{};
  std::string message;
  std::string hint;
};

class MegatronRefused : public MegatronRecut {};

TEST_F(MegatronRefused, SizesThatDoNotDivideTheModelAreRefusedWithTheNearestThatDo) {
  const std::string dist = "torch_dist_tp2_pp2_dp2";
  const std::vector<Refused> all{
      {"heads", dist, {.tp = 3}, "4 attention heads cannot be divided among 3 tensor-parallel ranks", "--tp 2"},
      {"layers", dist, {.pp = 3}, "4 layers cannot be divided among 3 pipeline stages", "--pp 2"},
      {"chunks",
       dist,
       {.pp = 2, .vpp = 3},
       "4 layers cannot be divided among 2 pipeline stages of 3 chunks",
       "--vpp 1"},
      {"ends", dist, {.pp = 2, .decoder_first = 5}, "do not fit 4 layers on 2 stages", ""},
      {"ranks", dist, {.tp = 1 << 16, .pp = 1 << 16}, "too many ranks", ""},
      {"experts", "legacy_moe_ep2_pp2_dp2", {.ep = 3}, "4 experts cannot be divided among 3 ranks", "--ep 1"}};
  for (const Refused& each : all) {
    SCOPED_TRACE(each.name);
    const auto report = convert_to(golden_root("megatron/" + each.golden), each.options);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Errc::unsupported);
    EXPECT_NE(report.error().message.find(each.message), std::string::npos) << report.error().message;
    EXPECT_EQ(report.error().hint, each.hint);
    EXPECT_FALSE(std::filesystem::exists(target_));
  }
}

}  // namespace
}  // namespace ckpt::test
