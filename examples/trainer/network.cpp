#include "network.hpp"

#include <algorithm>
#include <cmath>

namespace {

constexpr int kActivationTag = 1;
constexpr int kSlopeTag = 2;

int count(const std::vector<float>& values) {
  return static_cast<int>(values.size());
}

}  // namespace

std::vector<Parameter> parameters(const NetworkSize& size, const Mesh& mesh) {
  std::vector<Parameter> all;
  const auto parts = static_cast<std::size_t>(mesh.tp_size);
  for (int i = 0; i < size.layers; ++i) {
    const bool cuts_output = i % 2 == 0;
    const std::string layer = "layers." + std::to_string(i);
    const int stage = i / (size.layers / mesh.pp_size);
    all.push_back({.name = layer + ".weight",
                   .shape = {size.width, size.width},
                   .cut_dim = cuts_output ? 0 : 1,
                   .stage = stage,
                   .elements = size.width * size.width / parts});
    all.push_back({.name = layer + ".bias",
                   .shape = {size.width},
                   .cut_dim = cuts_output ? 0 : Parameter::kWhole,
                   .stage = stage,
                   .elements = cuts_output ? size.width / parts : size.width});
  }
  return all;
}

std::vector<float> initial_values(const Parameter& parameter, std::size_t number, const Mesh& mesh) {
  std::vector<float> values(parameter.elements);
  if (parameter.shape.size() == 1) return values;
  const std::size_t width = parameter.shape[1];
  const auto parts = static_cast<std::size_t>(mesh.tp_size);
  const auto part = static_cast<std::size_t>(mesh.tp);
  const std::size_t columns = parameter.cut_dim == 1 ? width / parts : width;
  const std::size_t first_row = parameter.cut_dim == 0 ? width / parts * part : 0;
  const std::size_t first_column = parameter.cut_dim == 1 ? columns * part : 0;
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t element = (first_row + i / columns) * width + first_column + i % columns;
    Random random{kSeed + (number << 40) + (element << 8)};
    values[i] = scale * (static_cast<float>(random.next() >> 40) / static_cast<float>(1 << 23) - 1.0F);
  }
  return values;
}

Network::Network(const NetworkSize& size, const Mesh& mesh) : mesh_(mesh), width_(size.width) {
  const int here = size.layers / mesh.pp_size;
  const std::size_t slice = size.width / static_cast<std::size_t>(mesh.tp_size);
  for (int i = mesh.pp * here; i < (mesh.pp + 1) * here; ++i) {
    const bool cuts_output = i % 2 == 0;
    layers_.push_back({.cuts_output = cuts_output,
                       .is_last = i == size.layers - 1,
                       .in = cuts_output ? size.width : slice,
                       .out = cuts_output ? slice : size.width});
  }
}

void Network::train(const Batch& batch, std::size_t samples_in_all, const float* values, float* gradient,
                    double& loss) {
  std::vector<std::vector<float>> passing(layers_.size() + 1);  // the input of each layer, and the output of the last
  passing[0].resize(batch.size() * layers_[0].in);
  if (mesh_.is_first_stage()) {
    auto at = passing[0].begin();
    for (const Sample& sample : batch) at = std::copy(sample.input.begin(), sample.input.end(), at);
  } else {
    MPI_Recv(passing[0].data(), count(passing[0]), MPI_FLOAT, mesh_.pp - 1, kActivationTag, mesh_.stages,
             MPI_STATUS_IGNORE);
  }
  const float* layer_values = values;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    passing[i + 1] = forward(layers_[i], passing[i], layer_values);
    layer_values += layers_[i].in * layers_[i].out + layers_[i].out;
  }

  std::vector<float> slope(passing.back().size());  // gradient of the loss by the layer's output
  if (mesh_.is_last_stage()) {
    const float scale = 2.0F / static_cast<float>(samples_in_all * width_);
    double squares = 0;
    for (std::size_t i = 0; i < slope.size(); ++i) {
      const float error = passing.back()[i] - batch[i / width_].target[i % width_];
      squares += static_cast<double>(error) * static_cast<double>(error);
      slope[i] = scale * error;
    }
    loss = squares / static_cast<double>(samples_in_all * width_);
  } else {
    MPI_Send(passing.back().data(), count(passing.back()), MPI_FLOAT, mesh_.pp + 1, kActivationTag, mesh_.stages);
    MPI_Recv(slope.data(), count(slope), MPI_FLOAT, mesh_.pp + 1, kSlopeTag, mesh_.stages, MPI_STATUS_IGNORE);
  }

  float* layer_gradient = gradient + (layer_values - values);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const std::size_t elements = layers_[i].in * layers_[i].out + layers_[i].out;
    layer_values -= elements;
    layer_gradient -= elements;
    slope = backward(layers_[i], passing[i], passing[i + 1], std::move(slope), layer_values, layer_gradient);
  }
  if (!mesh_.is_first_stage()) {
    MPI_Send(slope.data(), count(slope), MPI_FLOAT, mesh_.pp - 1, kSlopeTag, mesh_.stages);
  }
}

/// output[s][o] = sum over k of input[s][k] * weight[o][k], + bias[o], rectified.
std::vector<float> Network::forward(const Layer& layer, const std::vector<float>& input, const float* values) const {
  const std::size_t samples = input.size() / layer.in;
  const float* weight = values;
  const float* bias = values + layer.in * layer.out;
  // If the input is cut, the sum over it has blocks.
  const std::size_t blocks = layer.cuts_output ? 1 : static_cast<std::size_t>(kBlocks / mesh_.tp_size);
  const std::size_t block = layer.in / blocks;
  std::vector<float> sums(blocks * samples * layer.out);
  float* sum = sums.data();
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t s = 0; s < samples; ++s) {
      for (std::size_t o = 0; o < layer.out; ++o, ++sum) {
        for (std::size_t k = b * block; k < (b + 1) * block; ++k) {
          *sum += input[s * layer.in + k] * weight[o * layer.in + k];
        }
      }
    }
  }
  std::vector<float> output = layer.cuts_output ? std::move(sums) : sum_blocks(sums, samples * layer.out);
  for (std::size_t i = 0; i < output.size(); ++i) {
    output[i] += bias[i % layer.out];
    if (!layer.is_last) output[i] = std::max(output[i], 0.0F);
  }
  return output;
}

/// Backward: takes the gradient by the output, adds those by weight and bias to `gradient`, returns that by the input.
std::vector<float> Network::backward(const Layer& layer, const std::vector<float>& input,
                                     const std::vector<float>& output, std::vector<float> slope, const float* values,
                                     float* gradient) const {
  const std::size_t samples = input.size() / layer.in;
  float* bias_gradient = gradient + layer.in * layer.out;
  for (std::size_t i = 0; i < slope.size(); ++i) {
    if (!layer.is_last && output[i] <= 0) slope[i] = 0;
    bias_gradient[i % layer.out] += slope[i];
  }
  // If the output is cut, the sum over it has blocks.
  const std::size_t blocks = layer.cuts_output ? static_cast<std::size_t>(kBlocks / mesh_.tp_size) : 1;
  const std::size_t block = layer.out / blocks;
  std::vector<float> sums(blocks * samples * layer.in);
  float* sum = sums.data();
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t s = 0; s < samples; ++s, sum += layer.in) {
      for (std::size_t o = b * block; o < (b + 1) * block; ++o) {
        const float by_output = slope[s * layer.out + o];
        for (std::size_t k = 0; k < layer.in; ++k) {
          sum[k] += by_output * values[o * layer.in + k];
          gradient[o * layer.in + k] += by_output * input[s * layer.in + k];
        }
      }
    }
  }
  return layer.cuts_output ? sum_blocks(sums, samples * layer.in) : sums;
}

/// Adds the blocks of all ranks of the tensor axis, `length` numbers each, in their order.
std::vector<float> Network::sum_blocks(const std::vector<float>& blocks, std::size_t length) const {
  std::vector<float> all(kBlocks * length);
  MPI_Allgather(blocks.data(), count(blocks), MPI_FLOAT, all.data(), count(blocks), MPI_FLOAT, mesh_.tensor);
  std::vector<float> sum(length);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    for (std::size_t i = 0; i < length; ++i) sum[i] += all[b * length + i];
  }
  return sum;
}
