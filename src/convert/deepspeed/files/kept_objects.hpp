#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/objects.hpp"
#include "convert/deepspeed/files/state_file.hpp"

namespace ckpt::deepspeed {

/// Everything in a model file except its layout: client state, schedulers, configuration, counters.
Result<std::vector<NamedObject>> model_objects(const StateFile& file, ObjectReader& reader);
/// Entries of `module` that are not tensors, such as the extra state of a layer.
Result<> module_objects(const ModelStates& model, ObjectReader& reader, std::vector<NamedObject>& objects);

/// The suffix of the names of a rank's own objects and tensors: "" for the first, "@3" for rank 3.
std::string rank_suffix(std::uint64_t rank);

/// The objects that a checkpoint's files hold, gathered file by file: those of model files and those of optimizer
/// files, with their tensors, and the pickles that hold objects of unknown classes.
class KeptObjects {
 public:
  explicit KeptObjects(MapBuilder& builder) : builder_(builder) {}

  enum class Of : std::uint8_t { model, optimizer };
  /// Keeps the objects that were met in one rank's file.
  void keep(const StateFile& file, std::uint64_t rank, const ObjectReader& reader, Of of,
            std::vector<NamedObject> objects);
  /// For the readers of the other ranks' files, once the first one's were kept.
  const FirstTensors& first_tensors() const { return first_tensors_; }
  /// Adds all to the builder's map: after the tensors that are the checkpoint's own.
  Result<> finish();

 private:
  struct Pickle {
    std::string path;
    std::uint32_t file = 0;
    Extent bytes{};
  };

  MapBuilder& builder_;
  RankObjects model_{};
  RankObjects optimizer_{};
  std::vector<ObjectTensor> tensors_{};
  FirstTensors first_tensors_{};
  std::vector<Pickle> pickles_{};
};

}  // namespace ckpt::deepspeed
