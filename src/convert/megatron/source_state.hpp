#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/megatron/common_state.hpp"
#include "convert/write_request.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

/// What a tensor of a request is to Megatron-LM.
enum class Kind : std::uint8_t {
  weight,      ///< or a buffer
  state,       ///< of a weight's optimizer, in the weight's shape
  step,        ///< the optimizer's, as a tensor
  common,      ///< a tensor of the state that all ranks have in common: the loss scale
  bucket,      ///< flat optimizer state of a rank: dp_reshardable
  item,        ///< an object that a source of the same kind stores as an item of its own
  pickle,      ///< the objects of a file, which the request has as objects
  rank_bytes,  ///< of a rank: states of random generators
  other_state  ///< optimizer state that it cannot load
};

/// The tensors of a request as a target of Megatron-LM's sees them.
struct SourceState {
  std::vector<Tensor> tensors{};  ///< of the request, with names and types of the target
  std::vector<Kind> kinds{};      ///< likewise
  CommonParts common{};

  /// Names of the tensors of a kind.
  std::vector<std::string> names(Kind kind) const;
};

/// errors  unsupported: no weight has a name of Megatron-LM's
Result<SourceState> source_state(const WriteRequest& request);

/// Notes on what the target lacks: states of ranks, optimizer state, tied names.
void report_left_out(const WriteRequest& request, const SourceState& state, std::vector<Finding>& out);

/// Notes on training state that has no place in the target: none without names.
void report_lost(const SourceState& state, const std::vector<std::string>& names, std::string_view one,
                 std::string_view many, std::vector<Finding>& out);

/// Whether the source is Megatron-LM's, or its weights have such names.
bool fits(const Map& source);

}  // namespace ckpt::megatron
