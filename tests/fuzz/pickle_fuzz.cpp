#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "format/torch/pickle.hpp"
#include "format/torch/torch_object.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}

/// A plain tensor's view ends inside its storage.
void check(const ckpt::torch::TensorView& view) {
  require(view.shape.size() == view.strides.size());
  std::uint64_t last = view.storage_offset;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 0) return;
    require(view.strides[i] >= 0);
    last += (view.shape[i] - 1) * static_cast<std::uint64_t>(view.strides[i]);
  }
  require(view.element_bytes > 0 && last < view.storage_bytes / view.element_bytes);
}
}  // namespace

// Interprets a pickle, then asks of every value that torch's rules reach what it is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ckpt::pickle::Budget budget{.max_nodes = 1 << 18, .max_opcodes = 1 << 20, .max_bytes = 64 << 20};
  std::size_t used = 0;
  const auto graph = ckpt::pickle::parse(std::as_bytes(std::span(data, size)), budget, &used);
  if (!graph) return 0;
  require(used <= size);
  const auto value = ckpt::torch::to_value(*graph, graph->root(), [&](ckpt::pickle::NodeId node) {
    if (const auto tensor = ckpt::torch::as_tensor(*graph, node); tensor && *tensor) check(**tensor);
    return std::optional<std::string>("tensor");
  });
  (void)value;
  (void)ckpt::torch::as_mapping(*graph, graph->root());
  (void)ckpt::torch::as_sequence(*graph, graph->root());
  (void)ckpt::torch::as_shape(*graph, graph->root());
  (void)ckpt::torch::unknown_classes(*graph);
  return 0;
}
