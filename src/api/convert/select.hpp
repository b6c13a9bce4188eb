#pragma once

#include <vector>

#include "api/verbs.hpp"
#include "convert/format.hpp"

namespace ckpt {

/// The tensors that a conversion takes from its source, with the names and dtypes of the target.
struct Selection {
  std::vector<Selected> tensors{};
  std::vector<Alias> aliases{};
  std::vector<NamedObject> objects{};
  std::vector<Finding> notes{};  ///< decisions: which weights, dropped wrappers, words without a match
  bool partial = false;          ///< a requested item is missing
};

/// Applies --only, --weights, --dtype and the prefixes. Pure.
///
/// keeps_ranks  the target has the source's model-parallel ranks: its files are laid out by the weights that each of them
///              holds, so these are taken as stored
/// errors       not_found: nothing matches; usage: two tensors, or a tied name and another tensor, would get one name;
///              unsupported: --weights master, where the target keeps the ranks
Result<Selection> select(const Map& map, const ConvertRequest& request, bool keeps_ranks = false);

/// The source's findings; those about files that were not asked for are notes.
std::vector<Finding> findings_for(const Map& map, const ConvertRequest& request, const Format& target);
/// Whether the source has such a finding: exit 3, unless the request allows it.
bool skips_requested(const Map& map, const ConvertRequest& request, const Format& target);

}  // namespace ckpt
