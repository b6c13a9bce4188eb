#pragma once

// Adam over the data-parallel ranks of a mesh, with the stages of ZeRO. Gradients of micro-batches are added in their
// order, whatever ranks they come from.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mesh.hpp"
#include "network.hpp"

class Optimizer {
 public:
  /// zero 0: every rank keeps and updates everything. 1: exp_avg and exp_avg_sq of a stage's parameters, laid end to
  /// end, are divided into equal parts, one per rank; 2: the summed gradients too. 3: each parameter is divided
  /// separately, with its gradient and state; its values are gathered for each step.
  Optimizer(const NetworkSize& size, const Mesh& mesh, int zero);

  /// This stage's parameters, one after another, until `update`. Collective over the data axis.
  const float* gather_values();
  std::size_t elements() const { return elements_; }
  /// One step of Adam with the gradients of this rank's micro-batches, elements() each, one after another. Collective
  /// over the data axis; every rank of it has the same number of micro-batches.
  void update(const std::vector<float>& gradients);

  /// The part of a parameter that this rank keeps; empty for other stages.
  struct Kept {
    Parameter parameter;
    std::uint64_t part = 0;   ///< elements of each rank's part, if ZeRO divides it ...
    std::uint64_t begin = 0;  ///< ... and the offset of the parameter in the divided array
    std::span<float> values{}, exp_avg{}, exp_avg_sq{};
  };
  std::vector<Kept> kept();
  std::int64_t& steps() { return steps_; }

 private:
  /// An array that is divided into one part per rank: elements [begin, end) of the stage.
  struct Group {
    std::size_t begin = 0, end = 0;
    std::size_t part = 0;
    std::size_t kept_at = 0;  // of this rank's part, in exp_avg
  };
  std::size_t part_begin(const Group& group, int rank) const;
  void gather(const Group& group, std::vector<float>& elements) const;
  void sum(const Group& group, const std::vector<float>& gradients, std::vector<float>& gradient) const;
  std::span<float> kept_of(std::vector<float>& state, const Group& group, std::size_t begin, std::size_t end) const;

  Mesh mesh_;
  int zero_;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> begins_;  // of each in its stage
  std::vector<std::size_t> stages_;  // elements of each stage
  std::size_t elements_ = 0;         // of this one
  std::vector<Group> groups_;
  std::int64_t steps_ = 0;
  std::vector<float> values_;                        // all; with ZeRO-3 only between gather_values and update
  std::vector<float> shard_, exp_avg_, exp_avg_sq_;  // of what this rank updates; shard_: values, with ZeRO-3
};
