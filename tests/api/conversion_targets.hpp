#pragma once

#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "api/verbs.hpp"

namespace ckpt {

/// A form that conversions write, for suites that run whole conversions to each.
struct ConversionTarget {
  std::string name;    ///< in the name of a test
  std::string path;    ///< name of the file or directory
  std::string to{};    ///< "" = by the suffix
  std::string golden;  ///< case of tests/golden that it is made of
  std::string checked_file = "global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt";  ///< of the case, with checksums
  TargetOptions options{};
  std::uint64_t shard_bytes = 16 << 10;  ///< so small that there are several files
  /// A target with other content differs by this tag where its form keeps tensors under the trainer's names, else by a
  /// prefix of the names.
  std::string old_tag{};

  std::uint64_t stride_factor = 1;  ///< of many files: fewer of its operations fail

  /// The request for a target with other content.
  ConvertRequest changed(ConvertRequest request) const {
    request.options.tag = old_tag;
    if (old_tag.empty()) request.add_prefix = "old.";
    return request;
  }
};

inline void PrintTo(const ConversionTarget& target, std::ostream* out) {
  *out << target.name;
}

inline ConversionTarget shards_target() {
  return {.name = "Shards", .path = "m", .to = "safetensors", .golden = "deepspeed/zero3_fp32_dp3_tied_tiny"};
}

inline std::vector<ConversionTarget> foreign_targets() {
  const std::string zero3 = shards_target().golden;
  return {
      {.name = "TorchFile", .path = "m.pt", .golden = zero3},
      {.name = "TorchDirectory", .path = "m", .to = "torch", .golden = zero3, .shard_bytes = 8 << 10},
      {.name = "Dcp", .path = "m", .to = "dcp", .golden = zero3, .options = {.ranks = 8}},
      {.name = "DeepSpeed",
       .path = "m",
       .to = "deepspeed",
       .golden = zero3,
       .options = {.zero_stage = 2, .dp = 4},
       .old_tag = "old"},
      {.name = "DeepSpeedUniversal",
       .path = "m",
       .to = "deepspeed-universal",
       .golden = zero3,
       .old_tag = "old",
       .stride_factor = 8},
      {.name = "Megatron",
       .path = "m",
       .to = "megatron",
       .golden = "megatron/legacy_tp2_pp2_dp2_distopt",
       .checked_file = "iter_0000002/mp_rank_00_000/distrib_optim.pt",
       .stride_factor = 2},
      {.name = "HfFolder", .path = "m", .to = "safetensors", .golden = "folders/hf_tokenizer", .shard_bytes = 2 << 10},
  };
}

/// The distance between the operations of a conversion to a foreign form that fail: `usual`, or what CKPT_FAULT_STRIDE
/// says. Odd, so that what alternates between them does.
inline std::uint64_t fault_stride(const ConversionTarget& target, std::uint64_t usual) {
  const char* const text = std::getenv("CKPT_FAULT_STRIDE");
  return (text == nullptr ? usual * target.stride_factor : std::stoull(text)) | 1;
}

}  // namespace ckpt
