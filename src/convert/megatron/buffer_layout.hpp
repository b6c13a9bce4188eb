#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "convert/megatron/model_division.hpp"
#include "format/model/dtype.hpp"
#include "format/model/value.hpp"

namespace ckpt::megatron {

inline constexpr std::uint64_t kBufferAlignment = 64;  ///< elements, of a weight's first one

/// A trained weight of a rank, as the buffer of gradients sees it.
struct BufferedWeight {
  std::uint64_t elements = 0;
  bool is_shared = false;  ///< an embedding that several pipeline stages have: it has a bucket of its own
};

/// Where the weights of one buffer lie: the distributed optimizer keeps their masters and moments in the same places.
struct BufferLayout {
  struct Place {
    std::size_t bucket = 0;
    std::uint64_t offset = 0;  ///< elements, in the bucket
    std::uint64_t joined = 0;  ///< elements, where buckets follow each other without padding: in distrib_optim.pt
  };
  std::vector<Place> places{};           ///< of each weight
  std::vector<std::uint64_t> buckets{};  ///< elements of each, without the padding at its end
  std::uint64_t elements = 0;            ///< of all buckets
};

/// weights  in the order of the module's parameters, of one dtype; the buffer has them in reverse
/// bucket   elements from which on a bucket is full; none: there is one bucket
/// source   megatron/core/optimizer/distrib_optimizer.py: _compute_per_buffer_param_layout; param_layout.py
BufferLayout lay_out_buffer(std::span<const BufferedWeight> weights, std::optional<std::uint64_t> bucket);

/// Weights of one dtype in a chunk of a rank's stage, which share a buffer of gradients.
struct RankBuffer {
  Dtype dtype = Dtype::f32;
  std::vector<std::size_t> weights{};  ///< numbers in the chunk
  BufferLayout layout{};
};

/// The buffers of a chunk, in the order in which their dtypes occur.
///
/// dtype_of  of a weight; none: it is in no buffer of this optimizer
std::vector<RankBuffer> rank_buffers(std::span<const RankWeight> weights,
                                     const std::function<std::optional<Dtype>(const RankWeight&)>& dtype_of,
                                     std::optional<std::uint64_t> bucket);

/// Elements from which on a bucket of a run is full, in the first chunk of the first stage; none: it has one bucket.
///
/// data    data-parallel ranks, times the context-parallel ones
/// source  megatron/core/distributed/distributed_data_parallel.py
std::optional<std::uint64_t> bucket_elements(const Value& args, std::uint64_t data);

/// How a run divides the buffers of a rank into buckets.
struct BucketRules {
  std::optional<std::uint64_t> elements{};  ///< bucket_elements()
  /// Elements to a multiple of which a bucket is padded in the buffer: of the experts it may be another one.
  std::vector<std::uint64_t> paddings{};
};

/// source  megatron/core/optimizer/distrib_optimizer.py: _compute_per_buffer_param_layout; param_layout.py
BucketRules bucket_rules(const Value& args);

/// Where weights that lie at `offsets` of a buffer lie in distrib_optim.pt, which lacks the padding at the buckets' ends.
/// The layout that the rules give counts only if it puts every weight where it is.
///
/// weights   in the order of `offsets`
/// elements  of the file's flat tensor
/// returns   nothing if the buffer has another layout
std::optional<std::vector<std::uint64_t>> joined_offsets(std::span<const BufferedWeight> weights,
                                                         std::span<const std::uint64_t> offsets, std::uint64_t elements,
                                                         const BucketRules& rules);

}  // namespace ckpt::megatron
