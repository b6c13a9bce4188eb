#include "api/convert/progress_names.hpp"

#include <algorithm>

namespace ckpt {

ProgressNames::ProgressNames(const Plan& plan) : plan_(plan) {
  std::uint64_t end = 0;
  for (const TargetFile& file : plan.targets()) ends_.push_back(end += file.bytes);
}

std::string ProgressNames::at(std::uint64_t done_bytes) const {
  const auto end = std::ranges::upper_bound(ends_, done_bytes);
  if (end == ends_.end()) return {};
  const TargetFile& file = plan_.targets()[static_cast<std::size_t>(end - ends_.begin())];
  const std::uint64_t offset = done_bytes - (*end - file.bytes);
  const auto next = std::ranges::upper_bound(file.placements, offset, {}, &Placement::offset);
  if (next == file.placements.begin()) return file.path;
  const Placement& placement = *std::prev(next);
  if (placement.from != Placement::From::tensor) return file.path;
  return plan_.source().tensors[placement.tensor].name;
}

}  // namespace ckpt
