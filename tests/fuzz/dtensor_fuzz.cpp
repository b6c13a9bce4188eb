#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/torch/dtensor.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// The first byte is the rank whose pickle follows. What a rank holds lies inside the whole tensor and its own.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const ckpt::pickle::Budget budget{.max_nodes = 1 << 20, .max_opcodes = 4 << 20, .max_bytes = 256 << 20};
  const auto graph = ckpt::pickle::parse(std::as_bytes(std::span(data, size)).subspan(1), budget);
  if (!graph) return 0;
  ckpt::torch::DistributedReader reader(*graph, data[0]);
  const auto nodes = static_cast<ckpt::pickle::NodeId>(std::min<std::size_t>(graph->node_count(), 4096));
  for (ckpt::pickle::NodeId node = 0; node < nodes; ++node) {
    const auto view = reader.read(node);
    if (!view || !*view) continue;
    const auto pieces = ckpt::torch::local_pieces(**view);
    if (!pieces) continue;
    for (const auto& piece : *pieces) {
      require(ckpt::fits(piece.box, (*view)->global_shape));
      require(ckpt::fits({piece.local, piece.box.size}, (*view)->local.shape));
    }
  }
  return 0;
}
