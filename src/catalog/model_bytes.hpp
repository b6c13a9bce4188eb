#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"

/// How many bytes a training state has, on disk and in memory, by arithmetic alone.
namespace ckpt::catalog {

/// Bytes for each parameter, by part. Sums for model states: ZeRO, arXiv 1910.02054, section 3.
struct StateBytes {
  double weights = 2;    ///< bf16
  double master = 4;     ///< fp32 copy of the weights
  double moments = 8;    ///< Adam: m and v in fp32; 4 in bf16, 2 with 8 bits
  double gradients = 2;  ///< in memory only
  double optimizer() const { return master + moments; }
  double saved() const { return weights + optimizer(); }
};

/// "mixed" (14 bytes saved), "weights" (2), "fp32" (12: fp32 weights and moments), "mixed-8bit" (8),
/// "mixed-bf16-moments" (10). usage on any other name.
Result<StateBytes> state_preset(std::string_view name);

/// How ranks share a model: tensor, pipeline and data parallel, and the ZeRO stage over the data-parallel ranks.
struct Sharding {
  std::uint64_t tensor = 1;
  std::uint64_t pipeline = 1;
  std::uint64_t data = 1;
  int zero_stage = 0;             ///< 0 to 3
  bool replica_parallel = false;  ///< replicas are divided: no rank writes more than its share
};

/// Bytes of a checkpoint on disk; of a rank: the one that writes most.
struct DiskBytes {
  double weights = 0;
  double optimizer = 0;
  double total = 0;
  double largest_rank = 0;
  double smallest_rank = 0;
};
DiskBytes disk_bytes(double parameters, const StateBytes& state, const Sharding& sharding);

enum class Offload : std::uint8_t { none, optimizer_host, optimizer_nvme, all_host, all_nvme };
const char* offload_name(Offload offload);  ///< "none", "optimizer to host", ...

/// Memory of one rank during training, without activations, buffers and fragmentation.
struct MemoryBytes {
  int zero_stage = 0;
  Offload offload = Offload::none;
  double gpu = 0;
  double host = 0;
  double nvme = 0;
};
/// One row for each ZeRO stage and the offload choices that the stage has: the optimizer to host memory in stages 1 to
/// 3, to NVMe and the parameters as well in stage 3 (DeepSpeed, offload_optimizer and offload_param). An offloaded
/// optimizer takes its gradients along. Fastest first.
std::vector<MemoryBytes> memory_table(double parameters, const StateBytes& state, const Sharding& sharding);

/// Limits for one rank. 0: none available.
struct RankMemory {
  double gpu = 0;
  double host = 0;
  double nvme = 0;
};
bool fits(const MemoryBytes& need, const RankMemory& have);

/// "7B", "13B", "70B", "175B", "1.3B", "350M", "7_000_000_000": parameters. usage on anything else.
Result<double> parse_parameters(std::string_view text);

}  // namespace ckpt::catalog
