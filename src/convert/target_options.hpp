#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt {

/// Ranks that a target can be laid out for: each has files. A source may claim any number.
constexpr std::uint64_t kMostTargetRanks = 1u << 16;

/// Options that only some target formats use: the number of ranks of the target, and how its state is cut among them.
/// Each is an option of `ckpt convert` of the same name. A format lists those that it accepts (FormatWriter::options);
/// giving one to another format is an error.
struct TargetOptions {
  std::optional<std::uint64_t> zero_stage{};     ///< --zero-stage: DeepSpeed's ZeRO stage, 0 to 3
  std::uint64_t dp = 0;                          ///< --dp: data-parallel ranks; 0 = not given
  std::uint64_t ep = 0;                          ///< --ep: expert-parallel ranks; 0 = not given
  std::uint64_t etp = 0;                         ///< --etp: tensor-parallel ranks of an expert; 0 = not given
  std::uint64_t tp = 0;                          ///< --tp: tensor-parallel ranks; 0 = not given
  std::uint64_t pp = 0;                          ///< --pp: pipeline stages; 0 = not given
  std::uint64_t vpp = 0;                         ///< --vpp: chunks of each stage; 0 = not given
  std::optional<std::uint64_t> decoder_first{};  ///< --decoder-first: layers of the first stage
  std::optional<std::uint64_t> decoder_last{};   ///< --decoder-last: layers of the last stage
  std::string tag{};                             ///< --tag: name of the checkpoint's directory; "" = not given
  bool fresh_optimizer = false;                  ///< --fresh-optimizer: the target starts with a new optimizer
  std::uint64_t ranks = 0;                       ///< --ranks: ranks that load the target; 0 = not given
  /// --placement NAME=TEXT, in the order given: a pattern of tensor names, and how those are cut ("S0,R").
  std::vector<std::pair<std::string, std::string>> placements{};
};

/// The flags that these options were given by, without dashes.
std::vector<std::string_view> given_options(const TargetOptions& options);

/// Text that is equal for equal options, for a conversion's id; "" if none is given.
std::string options_text(const TargetOptions& options);

}  // namespace ckpt
