// Every kind of metadata, each bit of it flipped and each length cut off: refused with the file named, or without
// effect. Where a format guards its names and objects by no checksum, they alone may change.
//
// Some of the bits and lengths; with CKPT_DAMAGE_TRIALS=0 a bit or more of every byte, in turn each of the eight, and
// every length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>

#include "convert/damage.hpp"

namespace ckpt {
namespace {

using damage::Case;
using damage::Outcome;

constexpr std::uint64_t kTrials = 250;  // of a kind

/// What a format without a checksum over it cannot tell.
enum class Guard : std::uint8_t {
  everything,  ///< a changed bit is refused or means nothing
  values,      ///< names and objects may change, no tensor's bytes; a tensor that is lost is told of
  bounds,  ///< not even the pickle of its tensors has one (their strides may be others): what is read lies inside the
           ///< file
};

struct Kind {
  std::string name;
  std::string checkpoint;
  std::string file;
  Guard guard = Guard::everything;
  bool is_copy = false;  ///< read by verify alone
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.checkpoint << "/" << kind.file;
}

class Damage : public testing::TestWithParam<Kind> {
 protected:
  /// The distance between two trials of `count`, so that there are about kTrials: odd, to meet every bit.
  static std::uint64_t stride(std::uint64_t count) {
    const char* given = std::getenv("CKPT_DAMAGE_TRIALS");  // 0: every byte
    const std::uint64_t trials = given != nullptr ? std::strtoull(given, nullptr, 10) : kTrials;
    return trials == 0 ? 1 : (count / trials) | 1;
  }
  /// Judges the copy with other bytes in the case's file.
  void expect_harmless(Case& sound, const std::string& bytes, const std::string& what) {
    sound.copy().put(GetParam().file, bytes);
    std::string why;
    const Outcome outcome = sound.judge(why);
    const bool fine = GetParam().guard == Guard::bounds || outcome == Outcome::refused ||
                      outcome == Outcome::harmless ||
                      ((outcome == Outcome::renamed || outcome == Outcome::told) && GetParam().guard == Guard::values);
    EXPECT_TRUE(fine) << what << ": " << (outcome == Outcome::wrong ? "wrong: " : "changed: ") << why;
    ++count_[static_cast<std::size_t>(outcome)];
  }
  std::uint64_t count(Outcome outcome) const { return count_[static_cast<std::size_t>(outcome)]; }
  void report() {
    RecordProperty("refused", std::to_string(count(Outcome::refused)));
    RecordProperty("harmless", std::to_string(count(Outcome::harmless)));
    RecordProperty("renamed", std::to_string(count(Outcome::renamed)));
    RecordProperty("told", std::to_string(count(Outcome::told)));
  }

 private:
  std::uint64_t count_[5] = {};
};

TEST_P(Damage, AFlippedBitIsRefusedOrWithoutEffect) {
  Case sound(GetParam().checkpoint);
  const std::string bytes = sound.copy().files().at(GetParam().file);
  const std::uint64_t bits = bytes.size() * 8;
  const std::uint64_t step = std::max<std::uint64_t>(stride(bits), 7);
  for (std::uint64_t bit = 0; bit < bits; bit += step) {
    if (sound.is_value(GetParam().file, bit / 8)) continue;
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    expect_harmless(sound, damaged, "bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8));
    if (HasFailure()) return;
  }
  EXPECT_GT(count(Outcome::refused) + (GetParam().is_copy ? 1 : 0), 0u);
  report();
}

TEST_P(Damage, ACutLengthIsRefusedOrWithoutEffect) {
  Case sound(GetParam().checkpoint);
  const std::string bytes = sound.copy().files().at(GetParam().file);
  for (std::uint64_t length = 0; length < bytes.size(); length += stride(bytes.size())) {
    expect_harmless(sound, bytes.substr(0, length), "the first " + std::to_string(length) + " bytes");
    if (HasFailure()) return;
  }
  EXPECT_EQ(count(Outcome::renamed) + count(Outcome::wrong), 0u);
  report();
}

// Eight bytes of ones are every length's and every offset's worst; of zeros, the absence of what was promised.
TEST_P(Damage, OverwrittenWordsAreRefusedOrWithoutEffect) {
  Case sound(GetParam().checkpoint);
  const std::string bytes = sound.copy().files().at(GetParam().file);
  for (const char fill : {'\xff', '\0'}) {
    for (std::uint64_t at = 0; at < bytes.size(); at += stride(bytes.size())) {
      const std::uint64_t end = std::min<std::uint64_t>(bytes.size(), at + 8);
      bool values = false;
      for (std::uint64_t i = at; i < end; ++i) values = values || sound.is_value(GetParam().file, i);
      if (values) continue;
      std::string damaged = bytes;
      std::fill(damaged.begin() + static_cast<std::ptrdiff_t>(at), damaged.begin() + static_cast<std::ptrdiff_t>(end),
                fill);
      if (damaged == bytes) continue;
      expect_harmless(sound, damaged, (fill == 0 ? "zeros" : "ones") + std::string(" at byte ") + std::to_string(at));
      if (HasFailure()) return;
    }
  }
  report();
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Damage,
    testing::Values(Kind{"DcpMetadata", "torch/dcp_2d_s0_s1", ".metadata", Guard::values},
                    Kind{"DcpMetadataWithReplicas", "torch/dcp_hsdp", ".metadata", Guard::values},
                    Kind{"DcpMetadataOfARank", "torch/dcp_no_collectives", "__1.metadata", Guard::values},
                    Kind{"DcpMetadataOfSafetensors", "torch/dcp_safetensors", ".metadata", Guard::values},
                    Kind{"DcpItems", "torch/dcp_plain", "__1_0.distcp"},
                    Kind{"DcpSafetensorsItems", "torch/dcp_safetensors", "__1_0.distcp", Guard::values},
                    Kind{"TorchZip", "torch/pt_mixed", "mixed.pt"},
                    Kind{"TorchZipWithoutCrc", "torch/pt_nocrc", "file.pt", Guard::bounds},
                    Kind{"TorchLegacy", "torch/pt_legacy", "legacy.pt", Guard::bounds},
                    Kind{"TorchRankFile", "torch/rank_files_dtensor", "model_world_size_4_rank_1.pt"},
                    Kind{"SafetensorsHeader", "safetensors/dtypes", "dtypes.safetensors", Guard::values},
                    Kind{"SafetensorsIndex", "safetensors/llama_tied_sharded", "model.safetensors.index.json",
                         Guard::values},
                    Kind{"UniversalManifest", "ckpt/0.9-small", "manifest.json"},
                    Kind{"UniversalSecondManifest", "ckpt/0.9-small", "index/manifest.json", Guard::everything, true},
                    Kind{"UniversalSums", "ckpt/0.9-small", "sums.bin"},
                    Kind{"UniversalObjects", "ckpt/0.9-tied", "blobs/objects.json"},
                    Kind{"UniversalIndexFile", "ckpt/1.0-mesh", "index/00001.bin"},
                    Kind{"UniversalShard", "ckpt/0.9-small", "shards/optim/00000-00000.safetensors"},
                    Kind{"DeepSpeedModel", "deepspeed/zero2_bf16_dp4", "global_step3/mp_rank_00_model_states.pt"},
                    Kind{"DeepSpeedOptimizer", "deepspeed/zero2_bf16_dp4",
                         "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"},
                    Kind{"DeepSpeedStage3Model", "deepspeed/zero3_fp32_dp3_tied_tiny",
                         "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt"},
                    Kind{"DeepSpeedLegacyModel", "deepspeed/zero2_fp32_dp2_legacy_pt",
                         "global_step3/mp_rank_00_model_states.pt", Guard::bounds},
                    Kind{"DeepSpeedLegacyOptimizer", "deepspeed/zero2_fp32_dp2_legacy_pt",
                         "global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt", Guard::bounds}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace ckpt
