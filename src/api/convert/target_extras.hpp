#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "convert/format.hpp"

/// The files that go with a model (Map::extras) in a conversion.
namespace ckpt {

/// Which extras the target gets, and what becomes of config.json where weights are cast: those of the training go with
/// the training's state, the others with everything or the weights. None where the target keeps none.
/// errors  as read_extra; a config.json that is no JSON stays as it is
Result<std::vector<WantedExtra>> choose_extras(Io& io, const Source& source, const ConvertRequest& request,
                                               const Format& target);

/// Of a target that keeps them beside its own files: adds them to the skeleton. One whose name is that of a file of the
/// target's own is taken out of `extras`, with a warning in `notes`.
void add_beside(const Map& source, const Format& target, std::vector<WantedExtra>& extras, Skeleton& skeleton,
                std::vector<Finding>& notes);

/// What the user is told of them: those that were taken along, and names of files that were not.
void tell_extras(const Source& source, const std::vector<WantedExtra>& taken, std::vector<Finding>& notes);

}  // namespace ckpt
