#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

/// The files that go with a model (Map::extras) in a conversion.
namespace ckpt {

/// Which extras the target gets, and how config.json changes if weights are cast: training files go with training
/// state, the others with everything or the weights. None if the target keeps none.
/// errors  as read_extra; a config.json that is not JSON is unchanged
Result<std::vector<WantedExtra>> choose_extras(Io& io, const Source& source, const ConvertRequest& request,
                                               const Format& target);

/// For a target that keeps extras as files: adds them to the skeleton. One with the name of a file of the target's own
/// is removed from `extras` and added to `dropped`.
void add_beside(const Map& source, const Format& target, std::vector<WantedExtra>& extras, Skeleton& skeleton);

/// For a target that is a trainer's directory: the files of the trainer's other state, which is removed from the
/// request.
Result<Skeleton> lay_out_state_beside(WriteRequest& request, const Format& target);

/// Notes for the user: copied extras, and names of files that were not copied.
void report_extras(const Source& source, const std::vector<WantedExtra>& taken, std::vector<Finding>& notes);

}  // namespace ckpt
