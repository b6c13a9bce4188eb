#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/model/box.hpp"
#include "format/naming/profile.hpp"
#include "format/naming/settings.hpp"

namespace ckpt::naming {

/// A box of Megatron-LM's tensor that is a box of one of those of transformers.
struct Segment {
  Box megatron{};
  std::size_t tensor = 0;  ///< of Rule::hf
  Box hf{};                ///< its dimensions are reversed if the rule's tensors are transposed
};

/// How a rule's tensors hold each other: the segments cover all of those of transformers, and Megatron-LM's except for
/// rows of padding, once.
struct Cutting {
  Shape megatron{};  ///< without padding
  std::vector<Shape> hf{};
  std::vector<Segment> segments{};
};

/// Of one layer and one expert, by the settings alone.
/// errors  not_found with the setting that is not known; refused: a number that does not divide, as heads by groups
Result<Cutting> cutting_of(const Rule& rule, const Settings& settings);

}  // namespace ckpt::naming
