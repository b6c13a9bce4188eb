#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/optimizer_roles.hpp"
#include "convert/torch/state_tree.hpp"
#include "convert/torch_archive.hpp"
#include "convert/unique_names.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/torch/dtensor.hpp"
#include "format/torch/sharded_tensor.hpp"

namespace ckpt::torch {

/// One rank's file of a set: "model_world_size_4_rank_0.pt" (verl), "pytorch_model_fsdp_0_rank2.bin" (Accelerate).
struct RankFile {
  std::string path{};      ///< relative to the root
  std::string file_set{};  ///< "model_world_size_4", "pytorch_model_fsdp_0"
  std::string stem{};      ///< the set without its world size: "model"
  std::uint64_t rank = 0;
  std::optional<std::uint64_t> world{};  ///< if the name, or other files, show it
  /// torch_checkpointing: the item that the file is a rank's part of, which is the first part of all paths in it.
  std::string item{};
};
/// The rank in the name; nothing if the name is not of a known set.
std::optional<RankFile> as_rank_file(std::string_view name);
/// A file whose name ends in a number, "model_0.pt": a rank's only if its tensors are distributed (holds_distributed),
/// else the number may be a step.
std::optional<RankFile> as_numbered_file(std::string_view name);
/// Whether a pickle has DTensors or ShardedTensors.
bool holds_distributed(const pickle::Graph& graph);

/// Rank files in order: weights first, then sets by name; in a set by rank.
/// errors  incomplete: a rank's file is missing, naming it; ambiguous: a set of two world sizes
Result<std::vector<RankFile>> order_rank_files(const std::string& root, std::vector<RankFile> files);

/// Joins the files of all ranks into one map, one pickle at a time: add each file in the order of order_rank_files,
/// then build; do not use the builder afterwards.
///
/// A DTensor's parts are placed by its mesh and placements, a ShardedTensor's by their offsets. A plain tensor is a
/// replica on every rank, but a random state belongs to its rank. Names of the first set stay; those of later
/// file_set get the prefix "SET/", items their own name. What belongs to one rank, a random state or an object that
/// differs from the first rank's, gets the prefix "FILE/".
class RankFilesBuilder {
 public:
  explicit RankFilesBuilder(std::string root) : root_(std::move(root)) {}

  /// errors  corrupt, naming file and tensor: dtype or shape differ between ranks; a DTensor or a view that contradicts
  ///         itself, or was saved by another rank; tied on one rank and not on another; unsupported: tensors that are
  ///         neither plain nor distributed (sparse, quantised, ...); refused: as read_tree; over 4 million pieces
  Result<> add(const RankFile& file, MapFile map_file, const std::string& path, TorchArchive archive);
  /// errors  corrupt: two items of one name
  Result<Map> build(Hasher& metadata);

 private:
  using ViewKey = std::pair<std::string, std::vector<std::uint64_t>>;
  /// Something that will have a name.
  struct Item {
    std::string prefix{};  ///< "", "SET/" or "FILE/"
    Path path{};
    std::string name{};
  };
  /// A tensor of the map while its pieces are collected.
  struct Collected {
    Shape shape{};  ///< as torch counts elements
    std::string dtype_name{};
    std::string first_file{};
  };
  struct Piece {
    std::uint32_t tensor = 0;
    Chunk chunk{};
    Locator where{};
  };
  /// The file that is being added.
  struct Part {
    const RankFile& file;
    const std::string& path;
    const TorchArchive& archive;
    std::uint32_t index = 0;
    DistributedReader distributed;
    std::map<ViewKey, std::uint32_t> views{};
    Expansion expansion{};  ///< of its objects
  };

  Result<> add_leaf(Part& part, Path path, const Leaf& leaf);
  Result<> add_tensor(Part& part, Path path, pickle::NodeId node);
  Result<> add_sharded(Part& part, const Path& path, const ShardedView& sharded);
  Result<std::optional<std::uint32_t>> tensor_for(Part& part, Path path, const TensorView& view, const Shape& global);
  Result<> place(const Part& part, std::uint32_t tensor, const TensorView& view, const LocalPiece& piece);
  Result<> add_object(Part& part, Path path, pickle::NodeId node);
  void keep_pickle(const Part& part);
  std::string set_prefix(const RankFile& file) const;
  Error at(Error error, const Part& part, const Path& path) const;
  static Path map_path(const Item& item);

  std::string root_;
  std::string first_set_;
  std::vector<Item> tensors_;  // one for one with map_.tensors and collected_
  std::vector<Collected> collected_;
  std::vector<Piece> pieces_;
  std::vector<Item> tied_;
  std::vector<std::uint32_t> tied_to_;
  std::vector<Item> objects_;                                 // one for one with map_.objects
  std::unordered_map<std::string, std::uint32_t> tensor_of_;  // by prefix and path
  std::unordered_map<std::string, std::uint32_t> tie_of_;     // the tensor that it is
  std::unordered_map<std::string, Hash128> object_of_;        // the value of the first rank
  std::vector<OptimizerState> optimizers_;
  std::vector<std::string> metadata_;    // hashes of the pickles
  std::vector<std::string> attributed_;  // FILE/NAME of tensors with Python attributes
  std::uint64_t own_objects_ = 0;        // that differ from the first rank's
  Map map_;
};

}  // namespace ckpt::torch
