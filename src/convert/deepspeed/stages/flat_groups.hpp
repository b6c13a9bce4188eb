#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"

namespace ckpt::deepspeed {

/// The parts of one group on the ranks that share it, in order: all data-parallel ranks; for experts the ranks with the
/// same experts.
class GroupRanks {
 public:
  /// All of them, or those of `only`. The files must outlive it.
  GroupRanks(const std::vector<OptimStates>& files, std::size_t group);
  GroupRanks(const std::vector<OptimStates>& files, std::size_t group, const std::vector<std::uint64_t>& only);

  std::size_t group() const { return group_; }
  std::size_t size() const { return files_.size(); }
  const OptimStates& file(std::size_t part) const { return *files_[part]; }
  const GroupState& operator[](std::size_t part) const { return files_[part]->groups[group_]; }

 private:
  std::vector<const OptimStates*> files_{};
  std::size_t group_ = 0;
};

/// Stages 1 and 2: masters and slots of every parameter, each a stretch of its flat group, which all
/// ranks hold in parts. The order is that of param_shapes; element counts and, if the files have
/// them, the offsets of the weights in `module` and each rank's own list of fragments must agree with
/// it.
///
/// ranks    every rank's file, in rank order
/// errors   corrupt, naming file and group: a count that no alignment explains, ranks with different slots, an order
///          that the weights' own offsets contradict, a file that describes another rank's part
/// Muon needs whole matrices: a rank's momentum_buffer has all elements of each parameter that its part touches, end to
/// end, so that neighbours hold copies.
/// source   deepspeed/runtime/zero/stage_1_and_2.py; the alignment and the stripping of padding: see
///          format/model/cut.hpp
Result<> place_flat_groups(MapBuilder& builder, const ModelStates& model, const std::vector<OptimStates>& ranks);

/// The locations of one parameter's masters and slots.
struct FlatParameter {
  const NamedShape* shape = nullptr;  ///< of ModelStates::param_shapes
  struct Slot {
    std::string name{};
    Dtype dtype = Dtype::f32;
    std::vector<PartitionIndex::Source> copies{};  ///< the stretch of a flat group, or the whole on some ranks (Muon)
  };
  std::vector<Slot> slots{};  ///< the master first
};
/// The same without placing anything: the arrays are added, and each parameter's stretches of them returned.
Result<std::vector<FlatParameter>> lay_out_flat_groups(MapBuilder& builder, const ModelStates& model,
                                                       const std::vector<OptimStates>& ranks);

/// Requirements of stages 1 to 3 for a group's slots: all ranks have the same, with the same dtypes, and the same step.
Result<> check_same_slots(const GroupRanks& ranks);

/// The error for a slot whose element count does not fit: corrupt, or unsupported if the slot need not have one value
/// per element.
Error wrong_slot_count(const std::string& path, const std::string& what, std::string_view slot);

/// Adds the runs of one thing (the master, or slot number `slot`) of all ranks as an array.
std::uint32_t add_master_array(MapBuilder& builder, const GroupRanks& ranks);
std::uint32_t add_slot_array(MapBuilder& builder, const GroupRanks& ranks, std::size_t slot);

}  // namespace ckpt::deepspeed
