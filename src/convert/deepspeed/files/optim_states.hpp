#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/objects.hpp"
#include "convert/deepspeed/files/partition_index.hpp"
#include "convert/deepspeed/files/state_file.hpp"

namespace ckpt::deepspeed {

/// The part of one flat group (stages 1 and 2) or sub-group (stage 3) that one rank holds.
struct GroupState {
  Run master{};
  std::vector<std::pair<std::string, Run>> slots{};     ///< cut like the master: exp_avg, ...; by name
  std::vector<std::pair<std::string, Value>> values{};  ///< of the whole group: step, ...
  /// Stages 1 and 2: the offset of each parameter's fragment in this file's part, in elements, according to the file.
  /// Unreliable: wrong with round_robin_gradients, absent in older releases.
  std::vector<std::pair<std::string, Extent>> fragments{};
  std::string swapped{};  ///< stage 3: `ds_id` of a sub-group that is empty here: its state may be in raw files
  std::vector<std::uint64_t> alignment_paddings{};  ///< elements after each parameter; empty = none
};

/// Hyper-parameters of one parameter group, as the base optimizer stores them.
struct HyperGroup {
  Value values{};                        ///< a Dict, without its key "params"
  std::vector<std::uint64_t> members{};  ///< indices of flat groups, sub-groups or parameters
};

/// The facts of one rank's optimizer file; holds no graph.
struct OptimStates {
  std::string path{};
  std::uint64_t stage = 0;                   ///< 1, 2 or 3
  std::uint64_t part_count = 0;              ///< ranks that share the most widely shared group
  std::vector<std::uint64_t> part_counts{};  ///< ranks that share each group; one number for all in stage 3
  bool padding_kept = false;  ///< may be padded: BF16_Optimizer's masters, and those of early releases, which do not
                              ///< record paddings, keep them
  std::uint64_t swap_alignment = 1024;  ///< raw files are rounded up to a multiple of this, bytes
  std::vector<GroupState> groups{};
  std::vector<HyperGroup> hyper_groups{};
  std::vector<NamedObject> objects{};  ///< loss scaler and the like, under "optimizer."
};

/// Facts about the whole set from the first file.
struct OptimHead {
  std::uint64_t stage = 0;
  std::uint64_t part_count = 0;  ///< as OptimStates has them
  std::vector<std::uint64_t> part_counts{};
  bool bf16_optimizer = false;  ///< written by BF16_Optimizer, which names no stage and cuts as stage 1 does
};

/// errors   corrupt: not an optimizer file; unsupported, by name: AutoEP
Result<OptimHead> read_optim_head(const StateFile& file);
/// Takes the facts of an optimizer file. errors as read_optim_head
Result<OptimStates> read_optim_states(const StateFile& file, ObjectReader& objects);

/// The parts that stages 0 to 3 share: `state` of a torch optimizer's state dict, by index; empty for kNone.
Result<std::unordered_map<std::uint64_t, pickle::NodeId>> read_state_entries(const StateFile& file,
                                                                             pickle::NodeId state);
/// One entry of it: tensors become slots, 0-d tensors and Python values become values of the group.
Result<> read_slots(const StateFile& file, pickle::NodeId entry, const std::string& what, ObjectReader& objects,
                    GroupState& out);
/// The `param_groups` of a torch optimizer's state dict.
Result<std::vector<HyperGroup>> read_hyper_groups(const StateFile& file, pickle::NodeId list, ObjectReader& objects);
/// Every other key of an optimizer's dict that does not concern the layout: loss scaler and the like, as objects under
/// "optimizer.".
Result<std::vector<NamedObject>> optimizer_objects(const StateFile& file, pickle::NodeId dict, ObjectReader& objects);
/// True for slots of known optimizers that hold one value for each element of the parameter.
bool is_elementwise(std::string_view slot);
/// A dense tensor as a run; nothing if it is something else.
std::optional<Run> dense_run(const FileTensor& tensor);
/// A 1-D dense tensor as a run. corrupt if it is something else.
Result<Run> as_run(const StateFile& file, const FileTensor& tensor, const std::string& what);

}  // namespace ckpt::deepspeed
