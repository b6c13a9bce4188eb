#include "format/model/cut.hpp"

#include <algorithm>

#include "format/checked.hpp"

namespace ckpt::cut {
namespace {

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Part `part` of a range cut into steps of `step`, clipped at `length`; never overflows.
Extent clipped(std::uint64_t length, std::uint64_t step, std::uint64_t part) {
  if (step == 0 || part > length / step) return {length, length};
  const std::uint64_t begin = part * step;
  return {begin, begin + std::min(step, length - begin)};
}

}  // namespace

Extent chunk(const Split& split, std::uint64_t part) {
  return clipped(split.length, ceil_div(split.length, split.part_count), part);
}

std::uint64_t part_of_chunk(const Split& split, std::uint64_t at) {
  return at / ceil_div(split.length, split.part_count);
}

Extent even(const Split& split, std::uint64_t part) {
  const std::uint64_t shorter = split.length / split.part_count;
  const std::uint64_t longer_count = split.length % split.part_count;
  if (part >= split.part_count) return {split.length, split.length};
  const std::uint64_t begin = part * shorter + std::min(part, longer_count);
  return {begin, begin + shorter + (part < longer_count ? 1 : 0)};
}

std::uint64_t part_of_even(const Split& split, std::uint64_t at) {
  const std::uint64_t shorter = split.length / split.part_count;
  const std::uint64_t longer_count = split.length % split.part_count;
  const std::uint64_t in_longer = longer_count * (shorter + 1);
  return at < in_longer ? at / (shorter + 1) : longer_count + (at - in_longer) / shorter;
}

Extent FlatGroup::owned(std::uint64_t part) const {
  return clipped(element_count, part_elements, part);
}

Result<FlatGroup> flat_group(const FlatGroupOptions& options) {
  if (options.part_count == 0) return fail(Errc::corrupt, "a group is cut into no parts");
  CKPT_TRY(const std::uint64_t align, checked_mul(options.align_factor, options.part_count));
  if (align == 0) return fail(Errc::corrupt, "a group has no alignment");
  CKPT_TRY(const std::uint64_t padded, checked_mul(ceil_div(options.element_count, align), align));
  return FlatGroup{.element_count = options.element_count,
                   .part_count = options.part_count,
                   .part_elements = padded / options.part_count};
}

Extent Partition::owned(std::uint64_t part) const {
  return clipped(element_count, part_elements, part);
}

Result<Partition> partition(const Split& split) {
  if (split.part_count == 0) return fail(Errc::corrupt, "a parameter is cut into no parts");
  return Partition{.element_count = split.length,
                   .part_count = split.part_count,
                   .part_elements = ceil_div(split.length, split.part_count)};
}

std::vector<std::size_t> round_robin(std::size_t parameter_count, std::uint64_t part_count) {
  std::vector<std::size_t> out;
  out.reserve(parameter_count);
  for (std::uint64_t bucket = 0; bucket < part_count && bucket < parameter_count; ++bucket) {
    for (std::uint64_t i = bucket; i < parameter_count; i += part_count) out.push_back(static_cast<std::size_t>(i));
  }
  return out;
}

Result<std::vector<std::size_t>> sub_groups(const SubGroupOptions& options) {
  std::uint64_t total = 0;
  for (const std::uint64_t elements : options.part_elements) {
    CKPT_TRY(total, checked_add(total, elements));
  }
  std::vector<std::size_t> ends;
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < options.part_elements.size(); ++i) {
    open += options.part_elements[i];
    const bool last = i + 1 == options.part_elements.size();
    const bool full = options.sub_group_elements < total && open >= options.sub_group_elements;
    if (!full && !last) continue;
    ends.push_back(i + 1);
    open = 0;
  }
  return ends;
}

}  // namespace ckpt::cut
