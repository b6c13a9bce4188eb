#include "convert/megatron/buffer_layout.hpp"

#include <algorithm>

#include "convert/megatron/run_arguments.hpp"
#include "format/checked.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kAlignment = 64;              // elements, of a weight's first one
constexpr std::uint64_t kDefaultBucket = 40'000'000;  // elements
constexpr std::uint64_t kBucketOfRank = 1'000'000;    // at least, times the data-parallel ranks

}  // namespace

BufferLayout lay_out_buffer(std::span<const BufferedWeight> weights, std::optional<std::uint64_t> bucket) {
  BufferLayout out;
  out.places.resize(weights.size());
  std::uint64_t used = 0;  // of the bucket that is being filled, which begins at a multiple of the alignment
  bool is_empty = true;
  const auto close = [&] {
    out.buckets.push_back(used);
    out.elements += used;
    used = 0;
    is_empty = true;
  };
  for (std::size_t i = weights.size(); i-- > 0;) {
    used = round_up(used, kAlignment);
    if (weights[i].is_shared && !is_empty) close();
    out.places[i] = {.bucket = out.buckets.size(), .offset = used, .joined = out.elements + used};
    used += weights[i].elements;
    is_empty = false;
    if (weights[i].is_shared || (bucket && used >= *bucket)) close();
  }
  if (!is_empty) close();
  return out;
}

std::vector<RankBuffer> rank_buffers(std::span<const RankWeight> weights,
                                     const std::function<std::optional<Dtype>(const RankWeight&)>& dtype_of,
                                     std::optional<std::uint64_t> bucket) {
  std::vector<RankBuffer> out;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto dtype = dtype_of(weights[i]);
    if (!dtype) continue;
    auto known = std::ranges::find(out, *dtype, &RankBuffer::dtype);
    if (known == out.end()) known = out.insert(out.end(), {.dtype = *dtype});
    known->weights.push_back(i);
  }
  for (RankBuffer& buffer : out) {
    std::vector<BufferedWeight> own;
    for (const std::size_t i : buffer.weights)
      own.push_back({.elements = volume(weights[i].shape), .is_shared = weights[i].is_shared});
    buffer.layout = lay_out_buffer(own, bucket);
  }
  return out;
}

std::optional<std::uint64_t> bucket_elements(const Value& args, std::uint64_t data) {
  if (!is_set(args, "overlap_grad_reduce") || is_set(args, "overlap_param_gather_with_optimizer_step"))
    return std::nullopt;
  return count_argument(args, "ddp_bucket_size").value_or(std::max(kDefaultBucket, kBucketOfRank * data));
}

}  // namespace ckpt::megatron
