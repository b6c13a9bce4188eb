#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/state_file.hpp"

namespace ckpt::deepspeed {

/// The files in the folder of one parameter: `fp32.pt`, one for each slot of the optimizer, `step.pt`.
struct UniversalParameter {
  std::string name{};
  std::string folder{};                                     ///< below the root
  std::vector<std::pair<std::string, FileTensor>> slots{};  ///< the master first; shapes are the parameter's
  std::vector<std::pair<std::string, Value>> values{};      ///< step
  bool vocabulary = false;  ///< padding of the vocabulary was taken off: fewer rows than the model's

  const FileTensor* find(std::string_view slot) const;
};

/// Reads the folder of a parameter. Both forms of a file are known: a dict with the tensor under `param` (stages 1 and
/// 2), and a bare flat tensor (stage 3), which takes its shape from param_shapes.
///
/// shape    of the parameter by param_shapes; null if that does not list it: then only the first form can be read
/// errors   incomplete: no fp32.pt; corrupt: not such a file, or a shape that is not the parameter's
/// source   deepspeed/checkpoint/ds_to_universal.py: merge_tp_slices, _merge_zero3_slice_files
Result<UniversalParameter> read_universal_parameter(FileSet& files, const std::string& folder, const NamedShape* shape);

}  // namespace ckpt::deepspeed
