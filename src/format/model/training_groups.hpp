#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "format/model/object_tree.hpp"
#include "format/model/training_state.hpp"

/// Parameter groups in the spellings that torch.optim, FSDP and DeepSpeed have for them.
namespace ckpt {

/// A group as stored: members by name or by number.
struct SpelledGroup {
  std::vector<std::pair<std::string, Value>> options{};
  std::vector<std::string> names{};      ///< of members, as stored; empty if they are numbered
  std::vector<std::uint64_t> numbers{};  ///< of members; empty if they are named
  bool in_order = true;                  ///< members are in the optimizer's order, not in that of the keys
};

/// An option of a group. torch.optim keeps betas as a tuple; leaves of nested state do not distinguish tuples from lists.
Value as_group_option(std::string_view name, const Value& value);

/// The names of the tensors in a value; they live as long as it does.
void add_tensor_names(const Value& root, std::unordered_set<std::string_view>& names);

/// Reads the values below "param_groups": a list of dicts, as one leaf or as many, or options by parameter name.
///
/// keys     parameters as named by the optimizer's state, in module order: only needed for options by name
/// returns  nothing if it is none of these
std::optional<std::vector<SpelledGroup>> read_groups(std::span<const TreeLeaf> leaves,
                                                     std::span<const std::string> keys);

/// Gives numbered members the names of their parameters: members of each group, as indices of `candidates`; nothing if
/// more than one assignment fits.
///
/// candidates       shapes of the possible members
/// shapes           of members, by number, if their state shows it
/// in_module_order  whether the candidates are (Map::module_order); else only shapes decide
std::optional<std::vector<std::vector<std::size_t>>> name_members(
    const std::vector<Shape>& candidates, std::span<const SpelledGroup> groups,
    const std::unordered_map<std::uint64_t, Shape>& shapes, bool in_module_order);

}  // namespace ckpt
