#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/objects.hpp"
#include "convert/deepspeed/files/state_file.hpp"
#include "format/model/match_parameters.hpp"

namespace ckpt::deepspeed {

/// Records a slot of the optimizer and its location.
using AddSlot = std::function<Result<>(Tensor tensor, Locator where)>;

/// Slots that several ranks' optimizers have in common: each is one tensor, of which every rank holds a copy.
class SlotCopies {
 public:
  /// errors   corrupt: another shape or dtype than that of an earlier rank
  Result<> add(Tensor tensor, Locator where);
  Result<> place(MapBuilder& builder);

 private:
  struct Copies {
    Tensor tensor{};
    std::vector<Locator> places{};
  };
  std::vector<Copies> slots_{};
  std::unordered_map<std::string, std::size_t> slot_at_{};
};

/// The handling of slots whose parameters are unknown.
enum class Unnamed : std::uint8_t {
  keep_index,  ///< they are named by their index
  refuse,      ///< unsupported: nothing shows which of several ranks' indices are the same
};

/// The parameter groups of the optimizer under the key `optimizer` of a file; empty if there is none, or one of an
/// unknown form.
/// errors  corrupt
Result<std::vector<UnnamedGroup>> read_unnamed_groups(const StateFile& file);

/// Stage 0: groups of experts are named for their expert-parallel degree ("ep_size_4"). Finds that the last files are
/// missing, which leaves no gap in the numbers of the others.
///
/// file          the optimizer of an expert-parallel rank of model-parallel rank `model_rank`
/// expert_ranks  of which there are files
/// errors        incomplete: a group is of more ranks
/// source        deepspeed/moe/layer.py: expert_group_name
Result<> check_expert_ranks(const StateFile& file, std::uint64_t model_rank, std::uint64_t expert_ranks);

/// Stage 0: the optimizer under the key `optimizer` of a file, for the weights of `model`. It stores no names: they are
/// found by `match_parameters` among the weights of `module` that are neither buffers nor ties; if they cannot be
/// determined, slots keep their index (`optimizer.state.3.exp_avg`) and a finding says so.
///
/// fp32   a torch state dict; the weights are their own masters, and are listed as such too 16 bit `fp32_groups` (one
///        tensor each) or `fp32_groups_flat` (one per group, no alignment) with the state dict An optimizer of any
///        other form is kept as an object, its tensors under their paths.
///
/// io      reads a few elements of weights and masters if shapes do not decide
/// source  deepspeed/runtime/fp16/unfused_optimizer.py, fused_optimizer.py: state_dict
Result<> place_whole_optimizer(MapBuilder& builder, const ModelStates& model, const StateFile& file,
                               ObjectReader& objects, std::vector<NamedObject>& out, const AddSlot& add,
                               Unnamed unnamed);

}  // namespace ckpt::deepspeed
