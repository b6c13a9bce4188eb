#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/model/model.hpp"
#include "format/result.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// A part that a rank describes, by itself.
/// errors  usage: the tensor is in the model, or the part is not inside it
Result<> check_description(const Model& model, const Tensor& tensor, const Chunk& chunk);

/// The parts that this rank describes, as text for merge_descriptions.
std::string descriptions_text(std::span<const Piece> pieces);
/// For one part: equal if a text of it is equal.
std::uint64_t description_key(std::span<const Piece> piece);

/// The descriptions of all ranks.
struct MergedDescriptions {
  std::vector<Tensor> tensors{};        ///< each once, sorted by name
  std::vector<std::uint64_t> shared{};  ///< the keys of the parts that more than one rank describes, ascending
};
/// Together the ranks' parts must cover each: a checkpoint
/// with a hole would be seen by its reader alone, too late. Rank 0's; costs memory by the part, and is rebuilt only
/// where a description has changed.
///
/// errors  usage: ranks describe a tensor differently, one that is in the model, or not all of it, or parts of it
/// twice;
///         internal: another text
Result<MergedDescriptions> merge_descriptions(const Model& model, std::span<const std::string> texts);

}  // namespace ckpt
