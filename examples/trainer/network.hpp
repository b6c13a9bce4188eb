#pragma once

// A multi-layer perceptron of square layers, divided over the tensor and pipeline axes of a mesh. Every sum has an
// order that does not depend on the number of ranks, so that any mesh computes the same bits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data.hpp"
#include "mesh.hpp"

/// Number of partial sums, added in order, for a dimension that tensor parallelism may cut. The tensor-parallel size
/// must divide it, and it must divide the width.
inline constexpr int kBlocks = 8;

/// One of a network's parameters. Even layers are cut by columns of their output (dimension 0), odd ones by rows (their
/// input, dimension 1), as in Megatron-LM: a pair needs one exchange.
struct Parameter {
  static constexpr int kWhole = -1;

  std::string name;
  std::vector<std::uint64_t> shape;  ///< of the whole
  int cut_dim = kWhole;              ///< by the tensor axis
  int stage = 0;                     ///< of the pipeline: ranks of others do not hold it
  std::size_t elements = 0;          ///< that one rank of the tensor axis holds
};

struct NetworkSize {
  int layers = 4;
  std::size_t width = 256;
};

/// All parameters of all stages, in order.
std::vector<Parameter> parameters(const NetworkSize& size, const Mesh& mesh);
/// The initial values of this rank's part of a parameter: the same for an element on every rank that holds it.
std::vector<float> initial_values(const Parameter& parameter, std::size_t number, const Mesh& mesh);

/// The layers of this rank's stage.
class Network {
 public:
  Network(const NetworkSize& size, const Mesh& mesh);

  std::size_t width() const { return width_; }
  using Batch = std::vector<Sample>;
  /// Forward and backward of one micro-batch. Adds its share of the mean over `samples_in_all` samples to `gradient`,
  /// and to `loss` on the last stage. `values` and `gradient` hold this stage's parameters one after another.
  /// Collective over the ranks of the stages and the tensor axis.
  void train(const Batch& batch, std::size_t samples_in_all, const float* values, float* gradient, double& loss);

 private:
  struct Layer {
    bool cuts_output = false;
    bool is_last = false;         // of the network: no rectifier
    std::size_t in = 0, out = 0;  // that this rank holds
  };
  std::vector<float> forward(const Layer& layer, const std::vector<float>& input, const float* values) const;
  std::vector<float> backward(const Layer& layer, const std::vector<float>& input, const std::vector<float>& output,
                              std::vector<float> slope, const float* values, float* gradient) const;
  std::vector<float> sum_blocks(const std::vector<float>& blocks, std::size_t length) const;

  Mesh mesh_;
  std::size_t width_;
  std::vector<Layer> layers_;
};
