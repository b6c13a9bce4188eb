// Sound files in wrong places: two exchanged, one copied over another, one gone. Refused, or without effect on what is
// read.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "convert/damage.hpp"

namespace ckpt {
namespace {

using damage::Case;
using damage::Outcome;

struct Mixed {
  std::string name;
  std::string checkpoint;
  std::string suffix;  ///< of the files that are mixed up
  /// DCP's data files name neither rank nor tensor: where two are laid out alike nothing in them tells which is which.
  bool alike = false;
};

void PrintTo(const Mixed& mixed, std::ostream* out) {
  *out << mixed.checkpoint << "/*" << mixed.suffix;
}

class MixedFiles : public testing::TestWithParam<Mixed> {
 protected:
  std::vector<std::string> files_of(Case& sound) const {
    std::vector<std::string> out;
    for (const auto& [path, bytes] : sound.copy().files()) {
      if (path.ends_with(GetParam().suffix)) out.push_back(path);
    }
    return out;
  }
  void expect_not_wrong(Case& sound, const std::string& what) {
    std::string why;
    const Outcome outcome = sound.judge(why, true);
    EXPECT_TRUE(outcome == Outcome::refused || outcome == Outcome::harmless) << what << ": " << why;
    if (outcome == Outcome::refused) ++refused_;
  }
  /// Two files that tell what they hold by where their bytes lie alone.
  bool are_alike(Case& sound, const std::string& a, const std::string& b) const {
    return GetParam().alike && sound.copy().files().at(a).size() == sound.copy().files().at(b).size();
  }

  std::size_t refused_ = 0;
};

TEST_P(MixedFiles, ExchangedOrCopiedOverAnotherAreRefusedOrWithoutEffect) {
  Case sound(GetParam().checkpoint);
  const std::vector<std::string> files = files_of(sound);
  ASSERT_GT(files.size(), 1u);
  for (const std::string& a : files) {
    for (const std::string& b : files) {
      if (a == b || are_alike(sound, a, b)) continue;
      sound.copy().put(a, sound.copy().files().at(b));
      expect_not_wrong(sound, b + " copied over " + a);
      if (a < b) {
        sound.copy().put(b, sound.copy().files().at(a));
        expect_not_wrong(sound, a + " and " + b + " exchanged");
        sound.copy().restore(b);
      }
      sound.copy().restore(a);
    }
  }
  EXPECT_GT(refused_, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MixedFiles,
    testing::Values(Mixed{"Dcp", "torch/dcp_plain", ".distcp", true},
                    Mixed{"Dcp2d", "torch/dcp_2d_s0_s1", ".distcp", true},
                    Mixed{"DcpMetadataOfRanks", "torch/dcp_no_collectives", ".metadata"},
                    Mixed{"TorchRanks", "torch/rank_files_dtensor", ".pt"},
                    Mixed{"TorchRanksOfPlacements", "torch/rank_files_placements", ".pt"},
                    Mixed{"SafetensorsShards", "safetensors/gpt2_tied", ".safetensors"},
                    Mixed{"SafetensorsSlices", "torch/hf_sharded", ".safetensors"},
                    Mixed{"UniversalShards", "ckpt/1.0-mesh", "-00000.safetensors"},
                    Mixed{"UniversalIndexFiles", "ckpt/1.0-mesh", ".bin"},
                    Mixed{"Zero1", "deepspeed/zero1_fp16_dp2", "_optim_states.pt"},
                    Mixed{"Zero2", "deepspeed/zero2_bf16_dp4", "_optim_states.pt"},
                    Mixed{"Zero3Optimizer", "deepspeed/zero3_fp32_dp3_tied_tiny", "_optim_states.pt"},
                    Mixed{"Zero3Model", "deepspeed/zero3_fp32_dp3_tied_tiny", "_model_states.pt"},
                    Mixed{"Zero3Bf16Optimizer", "deepspeed/zero3_bf16_dp4", "_optim_states.pt"},
                    Mixed{"TensorParallelModel", "deepspeed/tp2_dp2_zero1_fp32", "_model_states.pt"},
                    Mixed{"TensorParallelOptimizer", "deepspeed/tp2_dp2_zero1_fp32", "_optim_states.pt"},
                    Mixed{"ExpertSlices", "deepspeed/moe_ep2_tp2_dp4_zero2_bf16_slices", "_model_states.pt"},
                    Mixed{"WholeExperts", "deepspeed/moe_ep2_tp2_dp2_zero0_fp32", "_optim_states.pt"},
                    Mixed{"PipelineExperts", "deepspeed/moe_ep2_pp2_dp2_zero1_fp32", "_optim_states.pt"},
                    Mixed{"PipelineLayers", "deepspeed/pp2_dp2_zero1_fp32", "_model_states.pt"}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace ckpt
