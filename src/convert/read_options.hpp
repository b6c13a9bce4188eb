#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "format/model/map_rules.hpp"
#include "format/model/rank_layout.hpp"

namespace ckpt {

struct ReadOptions {
  std::uint64_t metadata_limit = std::uint64_t{4} << 30;  ///< bytes of metadata a reader may hold
  /// The user's rules for this checkpoint, or null. Readers use only those for joining slices; flat tensors and new
  /// names are handled by apply_rules.
  const MapRules* rules = nullptr;
  /// Opens the readable part of a damaged checkpoint: files of the wrong size count as missing, and so do damaged
  /// objects. Used by formats that store hashes.
  bool salvage = false;
  /// Once set, reading and decoding the checkpoint ends with `interrupted`. Outlives the source.
  const std::atomic<bool>* stop = nullptr;
  /// Also reports other data next to the files of the checkpoint, and which files are `settings`.
  bool find_beside = false;
  bool lease = true;         ///< false: takes no lock, for looking at names only
  bool state_beside = true;  ///< joins the result of FormatReader::open_beside; else that counts as other data
  bool weights_alone =
      false;  ///< nothing else is wanted: files of the optimizer may be missing if the weights are whole
  /// Also fills Map::extras from a folder, or from the folder of a file; formats that store hashes have their
  /// own.
  bool extras = false;
  /// For a target that keeps the layout of model-parallel ranks: their slices are not joined, and this is filled with
  /// what each rank holds. Null: slices are joined.
  std::shared_ptr<RankLayout> ranks_apart{};
  std::string assets{};  ///< a model folder whose extras are used if the checkpoint has none of that name
  /// What the Python package saved is shown as such: names, roles and objects are those of the tree that was saved. False:
  /// as its files store it, and as `Run.load` finds it.
  bool saved_trees = false;
  /// Missing or changed files that a virtual checkpoint refers to are findings, not errors. Its tensors must not be
  /// read then.
  bool report_references = false;
};

}  // namespace ckpt
