#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"
#include "convert/deepspeed/files/partition_index.hpp"
#include "format/model/model.hpp"
#include "format/model/value.hpp"

namespace ckpt::deepspeed {

/// A map in the making: tensors and their places are added together, names are kept unique.
class MapBuilder {
 public:
  MapBuilder() : index_(std::make_shared<PartitionIndex>()) {}

  PartitionIndex& index() { return *index_; }
  bool has(const std::string& name) const { return names_.count(name) != 0; }
  std::size_t tensor_count() const { return map_.tensors.size(); }

  /// unsupported if the name is taken.
  Result<> add_whole(Tensor tensor, Locator where);
  Result<> add_in_group(Tensor tensor, const PartitionIndex::InGroup& place);
  Result<> add_partitioned(Tensor tensor, const PartitionIndex::Partitioned& place);
  Result<> add_pieces(Tensor tensor, std::vector<PartitionIndex::Piece> pieces);
  /// A tensor found in an object: state that belongs to no parameter.
  Result<> add_object_tensor(const ObjectTensor& found);
  /// The pickle of a file that holds objects of unknown classes, as a blob named by the file.
  Result<> add_pickle(const std::string& path, std::uint32_t file, Extent bytes);

  /// Tensor number `tensor` is the tensor that was added last, cast.
  void add_derived(std::size_t tensor);
  /// Nothing if the name is taken.
  void add_alias(std::string name, std::string target);
  void find(Severity severity, std::string text, std::string file = {}, std::string tensor = {});

  Map& map() { return map_; }
  /// The finished map, which owns the index.
  Map take();

 private:
  Result<> take_name(Tensor& tensor);

  Map map_{};
  std::shared_ptr<PartitionIndex> index_;
  std::unordered_set<std::string> names_{};
};

/// A weight, or a buffer, of a module.
Tensor module_tensor(const NamedTensor& entry, bool is_buffer);
/// `optimizer.state.<parameter>.<slot>`.
Tensor slot_tensor(const std::string& parameter, std::string_view slot, Dtype dtype, Shape shape);
constexpr std::string_view kMasterSlot = "master";

/// The names of the parameters of each flat group, sub-group or index. Values, so that all ranks' objects share them.
using GroupNames = std::vector<std::vector<ValuePtr>>;
/// In the optimizer's order; param_shapes is in that of the flat tensors.
/// round_robin_ranks  data-parallel ranks among which round_robin_gradients dealt the parameters; 0: it did not
GroupNames group_names(const ModelStates& model, std::uint64_t round_robin_ranks);
ValuePtr text_value(std::string text);

/// The objects that every stage stores once per rank: `optimizer.param_groups`, with parameters by name, and
/// `optimizer.group_state`, the values (step, ...) that a group's parameters share.
///
/// names    null if unknown: then the parameter groups keep the numbers
/// errors   corrupt: a parameter group names a member that does not exist
Result<std::vector<NamedObject>> group_objects(const OptimStates& states, const GroupNames* names);

}  // namespace ckpt::deepspeed
