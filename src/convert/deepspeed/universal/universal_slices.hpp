#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/kept_objects.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/model_parallel/sliced_tensors.hpp"

namespace ckpt::deepspeed {

/// The model files of a universal folder that several tensor- or pipeline-parallel ranks wrote. Parameters are whole in
/// the folder; the model files add the weights as trained, in slices, and buffers. In stage 3 they add only buffers,
/// and those of a rank's first data-parallel rank are read. From a pipeline they hold no weights: those were in files
/// of layers, which ds_to_universal.py does not copy.
class UniversalSlices {
 public:
  /// directory  of the folder, below the root
  /// errors     incomplete: the file of a rank is missing; unsupported: experts, frozen parameters in stage 3;
  ///            corrupt: files of several saves
  static Result<UniversalSlices> read(FileSet& files, KeptObjects& objects, const std::string& directory,
                                      const ModelParallelFiles& names);

  /// The facts of the first rank; its param_shapes has the parameters of all ranks, and the shapes of slices.
  const ModelStates& model() const { return model_; }
  bool has_weights() const { return !weights_.entries().empty(); }
  const SliceMesh& mesh() const { return mesh_; }

  /// Adds weights and buffers to the map. `rows` of a parameter whose vocabulary was padded may be more than those of
  /// its optimizer state.
  /// shapes   of the parameters, as the folder has them
  /// errors   as SlicedTensors::assemble; corrupt: a weight of another shape than its master
  Result<> place(MapBuilder& builder, const std::unordered_map<std::string, Shape>& shapes,
                 const std::unordered_set<std::string>& padded) const;

 private:
  ModelStates model_{};
  SliceMesh mesh_{};
  SlicedTensors weights_{};
};

}  // namespace ckpt::deepspeed
