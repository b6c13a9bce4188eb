#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

/// A tensor that one model-parallel rank, or one layer's file, holds.
struct HeldTensor {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string name;          ///< as the rank calls it
};

/// A file of one layer of a pipeline, as one tensor-parallel rank wrote it.
struct HeldLayer {
  std::string file;                   ///< its name
  std::vector<HeldTensor> tensors{};  ///< in the file's order, named as in it
};

/// What each model-parallel rank of a run holds, of a source whose slices were not joined (ReadOptions::ranks_apart).
/// Names in the map end in "@RANK" there: those of tensors always, those of objects where the ranks differ.
struct RankLayout {
  std::uint64_t tensor_ranks = 1;
  std::vector<std::vector<HeldTensor>> ranks{};  ///< by stage x tensor_ranks + tensor-parallel rank
  std::vector<HeldLayer> layers{};               ///< of a pipeline; by number, then by tensor-parallel rank
};

/// "NAME@3" for rank 3.
std::string ranked_name(std::string_view name, std::uint64_t rank);

/// A name that ends in "@RANK", in its parts.
struct RankedName {
  std::string_view name;  ///< all of it where it ends in no rank
  std::uint64_t rank = 0;
  bool has_rank = false;
};
/// ranks  how many there are: a higher number is part of the name
RankedName split_ranked_name(std::string_view name, std::size_t ranks);

}  // namespace ckpt
