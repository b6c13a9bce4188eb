#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"

/// The settings of a DeepSpeed configuration for swapping to disk: `aio` and `zero_optimization.offload_param` and
/// `offload_optimizer`.
/// source   deepspeed/runtime/swap_tensor/{constants,aio_config}.py, deepspeed/runtime/zero/offload_config.py (0.19.8);
///          `thread_count` is the name of `intra_op_parallelism` before 0.16.4
namespace ckpt::deepspeed {

/// The disk queue. Defaults are DeepSpeed's.
struct AioConfig {
  std::uint64_t block_bytes = 1 << 20;  ///< `block_size`, of one request
  std::uint64_t queue_depth = 8;        ///< requests in flight, of each thread
  std::uint64_t thread_count = 1;       ///< `intra_op_parallelism` or `thread_count`
  bool single_submit = false;
  bool overlap_events = true;
  bool use_gds = false;
};

/// Where parameters or optimizer state go. Sizes are elements, as DeepSpeed counts them.
struct OffloadTarget {
  enum class Device : std::uint8_t { none, cpu, nvme } device = Device::none;
  std::string nvme_path{};
  std::uint64_t buffer_count = 0;         ///< DeepSpeed's default: 5 for parameters, 4 for optimizer state
  std::uint64_t buffer_elements = 0;      ///< `buffer_size`, of parameters: 1e8; 0 = as large as the largest tensor
  std::uint64_t max_elements_in_cpu = 0;  ///< `max_in_cpu`, of parameters: 1e9
  bool pin_memory = true;
  bool pipeline_read = false;
  bool pipeline_write = false;
};

struct OffloadConfig {
  AioConfig aio{};
  OffloadTarget parameters{.buffer_count = 5, .buffer_elements = 100'000'000, .max_elements_in_cpu = 1'000'000'000};
  OffloadTarget optimizer{.buffer_count = 4};
  /// Settings of these objects that have no effect here, or a different one: "aio.use_gds: unavailable: ...". Includes
  /// keys that DeepSpeed does not know.
  std::vector<std::string> notes{};
};

/// Reads the text of a DeepSpeed configuration file; ignores everything outside of these objects. As in DeepSpeed a
/// count may be written as 1e8, null is the default, and so is "auto", with a note.
/// errors   corrupt with `offset`: not JSON; usage: a value of the wrong kind or out of range, or no `nvme_path`
///          although `device` is nvme. The message names the key.
Result<OffloadConfig> parse_offload_config(std::string_view text);

}  // namespace ckpt::deepspeed
