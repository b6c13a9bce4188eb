#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/write_request.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::torch {

/// The object that a file will hold.
struct WrittenState {
  ValuePtr value{};  ///< its tensors by their names in the target; a name that is not in the request is left out
  /// By a tensor's name: the storage of the source that it is a view of, if the source records that.
  std::unordered_map<std::string, Extent> storages{};
  std::vector<Finding> dropped{};
};

/// The contents of a torch.save file for a request:
///
/// - the source's own object, if it is one torch file and all of it is requested;
/// - weights alone: an OrderedDict by name, like a state dict;
/// - nested state (other torch files, DCP, the universal format made of these): the same nesting, by the paths;
/// - any other source: {"model": weights, "optimizer": {"state": {i: slots}, "param_groups":
///   [...]}, ...}: the form of torch.optim, with `param_names` in each group; fp32 masters,
///   which that form lacks, by name under "master_weights"; all other objects under their
///   names.
///
/// Objects that torch.load(weights_only=True) cannot load are kept only if the source is a torch file itself; else an
/// object becomes the dict of its attributes, or is left out and listed.
/// errors  refused: as WholeObject
///
/// random_states  `apart`: they get separate files, which trainers load directly
enum class RandomStates : std::uint8_t { within, apart };
Result<WrittenState> state_of(const WriteRequest& request, RandomStates random_states = RandomStates::within);

/// The state dict of some of a request's tensors, all of them written, in their order, by their names and those tied to
/// them.
ValuePtr state_dict(const WriteRequest& request, const std::vector<std::uint32_t>& selected);

}  // namespace ckpt::torch
