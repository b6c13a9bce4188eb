#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/match_parameters.hpp"

namespace ckpt::deepspeed {

/// The trained parameters of one layer of a pipeline, in the order of the layer's file.
struct LayerShapes {
  std::vector<Shape> shapes{};  ///< never empty; each with elements
};

/// A parameter of a stage: its layer and its place there, as indices into what assign_layers() was given.
struct StageParameter {
  std::size_t layer = 0;
  std::size_t tensor = 0;
  bool operator==(const StageParameter&) const = default;
};
/// By stage, in the order of the stage's module: tied layers first, then the layers of the stage.
using StageModules = std::vector<std::vector<StageParameter>>;

/// Finds which layers each stage of a pipeline trains, for optimizers that store no names. Stages hold consecutive
/// layers; a tied layer may also be trained by stages that do not hold its file. Element counts decide, then shapes.
/// Finds at most two tied layers.
///
/// layers   of the whole pipeline, in order, without those that train nothing
/// stages   the parameter groups of each stage's optimizer
/// returns  nothing if no division fits, or more than one: a wrong name is worse than none
/// source   deepspeed/runtime/pipe/module.py: PipelineModule registers tied_modules before the layers of its stage
std::optional<StageModules> assign_layers(const std::vector<LayerShapes>& layers,
                                          const std::vector<std::vector<UnnamedGroup>>& stages);

}  // namespace ckpt::deepspeed
