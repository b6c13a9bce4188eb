#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/run/plan.hpp"
#include "engine/run/staging.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/universal/sums.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// The files that one rank writes of a save, and where their bytes come from. The plan's source is `source`, whose
/// files are `memory`.
struct SaveFiles {
  Map source{};
  std::vector<MemorySource> memory{};
  std::vector<TargetFile> targets{};
  std::vector<universal::FileRecord> records{};  ///< of `targets`: key, size, offset of the data
  std::uint64_t bytes = 0;                       ///< of all targets
};

/// Checks a piece on its own as soon as it is added; the rest is checked when all ranks have reported. Local.
///
/// errors  usage, with the tensor: not in the model, or in the model but added with a description; outside its tensor;
///         of the wrong size
Result<> check_piece(const Piece& piece, const Model& model, std::uint64_t rank);

/// Lays out a rank's files: FORMAT.md sections 4 and 6. Local.
///
/// errors  usage, with the tensor: a piece of the wrong size, of a tensor that is not in the table, outside of its
///         tensor, given twice, or missing although this rank is to write it
Result<std::unique_ptr<SaveFiles>> lay_out_save(const SaveTable& table, std::span<const Piece> pieces,
                                                const Hash128& id, std::uint32_t writer);

}  // namespace ckpt
