#pragma once

#include "convert/open_source.hpp"
#include "convert/place.hpp"
#include "convert/read_options.hpp"

namespace ckpt {

/// Applies the naming profile that `--names` asks for. The profile and the settings of the model come from the arguments
/// of a Megatron-LM run in the map, else from config.json in the source's folder. To transformers: config.json becomes
/// an extra of the map unless it has one, which is compared with the arguments. To Megatron-LM: the arguments become the
/// object `args`. What one side cannot express is a finding.
///
/// errors  usage: no such profile, or neither arguments nor config.json are there, or no profile fits them; those of
///         apply_profile
Result<> use_names(Source& source, const Place& place, const ReadOptions& options);

}  // namespace ckpt
