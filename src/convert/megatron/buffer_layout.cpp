#include "convert/megatron/buffer_layout.hpp"

#include <algorithm>
#include <numeric>

#include "convert/megatron/run_arguments.hpp"
#include "format/checked.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kDefaultBucket = 40'000'000;  // elements
constexpr std::uint64_t kBucketOfRank = 1'000'000;    // at least, times the data-parallel ranks
constexpr std::uint64_t kPadding = 128;               // elements, of a bucket; also for each rank
constexpr std::uint64_t kPaddingForNccl = 1 << 16;    // likewise, with --ddp-pad-buckets-for-high-nccl-busbw
constexpr std::uint64_t kMostRanks = 1 << 24;

/// Whether weights lie at their offsets of a buffer whose buckets are padded to multiples of `padding`.
bool is_laid_out(const BufferLayout& layout, std::span<const std::uint64_t> offsets, std::uint64_t padding) {
  std::vector<std::uint64_t> begins{0};
  for (const std::uint64_t elements : layout.buckets) begins.push_back(begins.back() + round_up(elements, padding));
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] != begins[layout.places[i].bucket] + layout.places[i].offset) return false;
  return true;
}

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
    used = round_up(used, kBufferAlignment);
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

BucketRules bucket_rules(const Value& args) {
  const auto size = [&](std::string_view name) { return count_argument(args, name).value_or(1); };
  const std::uint64_t data = size("data_parallel_size") * size("context_parallel_size");
  const std::uint64_t tensor = size("tensor_model_parallel_size");
  const std::uint64_t of_expert =
      size("expert_model_parallel_size") * count_argument(args, "expert_tensor_parallel_size").value_or(tensor);
  BucketRules out{.elements = bucket_elements(args, data)};
  for (const std::uint64_t ranks : {data, data * tensor / of_expert})
    for (const std::uint64_t padding : {kPadding, kPaddingForNccl})
      if (ranks != 0 && ranks <= kMostRanks) out.paddings.push_back(std::lcm(ranks, padding));
  return out;
}

std::optional<std::vector<std::uint64_t>> joined_offsets(std::span<const BufferedWeight> weights,
                                                         std::span<const std::uint64_t> offsets, std::uint64_t elements,
                                                         const BucketRules& rules) {
  std::vector<std::size_t> order(weights.size());  // of the module: the last weight is the buffer's first
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater(), [&](std::size_t i) { return offsets[i]; });
  std::vector<BufferedWeight> in_order;
  std::vector<std::uint64_t> at;
  for (const std::size_t i : order) {
    in_order.push_back(weights[i]);
    at.push_back(offsets[i]);
  }
  const BufferLayout layout = lay_out_buffer(in_order, rules.elements);
  const auto fits = [&](std::uint64_t padding) { return is_laid_out(layout, at, padding); };
  if (layout.elements != elements || std::ranges::none_of(rules.paddings, fits)) return std::nullopt;
  std::vector<std::uint64_t> out(weights.size());
  for (std::size_t i = 0; i < order.size(); ++i) out[order[i]] = layout.places[i].joined;
  return out;
}

}  // namespace ckpt::megatron
