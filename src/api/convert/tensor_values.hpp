#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engine/run/plan.hpp"
#include "format/model/model.hpp"

/// Reading the values of tensors by a plan whose targets are never written.
namespace ckpt {

/// For a tensor with dimensions of stride 0, which repeat elements (torch's expand): one repetition of each; nothing if
/// there are none. A few bytes may represent any number of elements: those are read once.
Result<std::optional<Chunk>> without_repeats(const Map& map, std::uint32_t tensor);

/// The values of tensors in a leaf that a run delivers: the placement that they belong to, and its bytes in this leaf.
void visit_tensors(const Plan& plan, std::uint64_t leaf, std::span<const std::byte> bytes,
                   const std::function<void(const Placement&, std::span<const std::byte>)>& visit);

}  // namespace ckpt
