#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/torch/rank_files.hpp"
#include "format/result.hpp"
#include "format/torch/pickle.hpp"

namespace ckpt::torch {

constexpr std::string_view kItemIndexName = "metadata.pkl";

/// `metadata.pkl` of Meta's torch_checkpointing, written last: lists the items and ranks of a directory. Each rank
/// writes every item to its own file, ITEM_RANK.pt; distributed tensors are DTensors in it.
struct ItemIndex {
  std::uint64_t world_size = 0;
  std::vector<std::string> items{};  ///< that hold tensors; others have files all the same
};

/// True for these first bytes of a file named metadata.pkl (4 KiB are enough).
bool begins_item_index(std::string_view head);

/// errors  corrupt: not such a pickle; unsupported: files that are not ITEM_RANK.pt (another path or serialisation);
///         refused, as pickle::parse
/// source  torch_checkpointing: metadata.py, version "2.0"
Result<ItemIndex> parse_item_index(std::span<const std::byte> data, const pickle::Budget& budget);

/// The rank files of a directory that has such an index.
/// errors  incomplete, by name: a rank's file of an item is missing
Result<std::vector<RankFile>> select_item_files(const std::string& root, const std::vector<DirEntry>& entries,
                                                const ItemIndex& index);

}  // namespace ckpt::torch
