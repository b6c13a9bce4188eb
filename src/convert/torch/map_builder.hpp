#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/optimizer_roles.hpp"
#include "convert/torch/files.hpp"
#include "convert/torch/state_tree.hpp"
#include "convert/torch_archive.hpp"
#include "convert/unlisted.hpp"
#include "format/model/model.hpp"

namespace ckpt::torch {

/// Joins torch.save files into one map: add each file, then build.
class MapBuilder {
 public:
  /// root    as the user gave it, for messages
  /// listed  of a set: tensor -> file
  MapBuilder(std::string root, std::unordered_map<std::string, std::string> listed)
      : root_(std::move(root)), listed_(std::move(listed)) {}

  /// Adds the contents of an opened file. `path` is for messages.
  /// errors  corrupt: a tensor that contradicts itself or its storage; refused: as read_tree
  Result<> add(const StateFile& file, MapFile map_file, const std::string& path, TorchArchive archive);

  /// The map of all files; the builder is spent then. `metadata` has the bytes of their index.
  /// errors  incomplete: a listed tensor is not in its file; ambiguous: files hold the same tensors, so that each is a
  ///         checkpoint; corrupt: two items of one name; refused: objects that unfold to more than 4 million values
  Result<Map> build(Hasher& metadata);

 private:
  /// Equal views are one tensor: storage, dtype, offset, shape, strides, and constructor. A Parameter and a plain
  /// tensor of the same memory stay two: a state dict holds tied weights as the same kind.
  using ViewKey =
      std::tuple<std::string, std::string, std::uint64_t, Shape, std::vector<std::int64_t>, std::string_view>;

  /// An entry to be named: a tensor, a tied name, an object.
  struct Item {
    std::uint32_t part = 0;
    Path path{};
    std::uint32_t tensor = 0;  ///< tensors: itself; tied: the tensor that it is
    pickle::NodeId node = pickle::kNone;
    std::string name{};
  };

  /// One file.
  struct Part {
    StateFile file{};
    std::string path{};
    TorchArchive archive;
    std::unordered_map<pickle::NodeId, std::uint32_t> tensor_of{};
    std::map<ViewKey, std::uint32_t> views{};
    std::unordered_set<std::string> used_storages{};
    std::vector<std::string> not_plain{};   ///< "coo (sparse tensor)"
    std::vector<std::string> attributed{};  ///< tensors with Python attributes
    std::vector<std::string> deep{};        ///< objects that nest deeper than objects.json holds
    std::vector<std::string> untyped{};     ///< tensors whose bytes torch.load would not swap
    std::vector<OptimizerState> optimizers{};
    std::optional<std::uint64_t> step{};
    Expansion expansion{};  ///< of its objects
  };

  Result<> add_tensor(std::uint32_t part_index, Path path, pickle::NodeId node);
  void assign_part_roles(std::vector<OptimizerState>& optimizers, std::uint32_t first_tensor);
  Result<> add_objects();
  Result<> find_deep_objects();
  void report_untyped(const Part& part);
  void keep_pickles();
  void add_blob(std::uint32_t part_index, const std::string& entry, Extent bytes, std::optional<Crc> crc);
  bool is_listed(const Part& part, const Path& path);
  Result<> check_listed();
  void find_step(Part& part);
  Result<> check_one_checkpoint() const;
  Result<> name_all();
  void demote_lightnings(std::size_t first_tensor);
  void name_parameters();
  void add_aliases();
  void place();
  void keep_whole();
  Path map_path(const Item& item) const;
  Error at(Error error, const Part& part, const Path& path) const;

  std::string root_;
  std::unordered_map<std::string, std::string> listed_;
  std::unordered_set<std::string> found_;  ///< of listed_
  Unlisted unlisted_{};                    ///< tensors of a set
  std::vector<Part> parts_;
  std::vector<Item> tensors_;  ///< one for one with map_.tensors and where_
  std::vector<Locator> where_;
  std::vector<Extent> storages_;  ///< parallel to tensors_: the storage that each views
  std::vector<Item> tied_;
  std::vector<Item> objects_;
  Map map_;
};

}  // namespace ckpt::torch
