#include "loading/load_plan.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/run/fetch.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

// Reading over a gap this small is cheaper than another request, and a leaf that misses so little is worth its hash.
constexpr std::uint64_t kGap = 64 * 1024;
constexpr std::uint64_t kSpareShare = 50;  // a leaf may be read completely if that adds at most this share of it

std::size_t widest_dim(const Copy& copy) {
  const auto widest = std::max_element(copy.dims.begin(), copy.dims.end(), [](const Copy::Dim& a, const Copy::Dim& b) {
    return a.source_stride < b.source_stride;
  });
  return static_cast<std::size_t>(widest - copy.dims.begin());
}

/// Steps [begin, end) of dimension d.
Copy steps(const Copy& copy, std::size_t d, std::uint64_t begin, std::uint64_t end) {
  Copy part = copy;
  part.source_offset += begin * copy.dims[d].source_stride;
  part.target_offset += begin * copy.dims[d].target_stride;
  part.dims[d].count = end - begin;
  if (part.dims[d].count == 1) part.dims.erase(part.dims.begin() + static_cast<std::ptrdiff_t>(d));
  return part;
}

/// Cuts a copy at a byte of the source file. False: one element is on both sides.
bool cut_at(const Copy& copy, std::uint64_t boundary, std::vector<Copy>& before, std::vector<Copy>& after) {
  std::vector<Copy> stack{copy};
  while (!stack.empty()) {
    const Copy top = std::move(stack.back());
    stack.pop_back();
    const std::uint64_t span = source_span(top);
    if (top.source_offset + span <= boundary) {
      before.push_back(top);
      continue;
    }
    if (top.source_offset >= boundary) {
      after.push_back(top);
      continue;
    }
    if (top.dims.empty()) return false;
    const std::size_t d = widest_dim(top);
    const Copy::Dim& dim = top.dims[d];
    if (dim.source_stride == 0) return false;
    const std::uint64_t inner = span - (dim.count - 1) * dim.source_stride;
    const std::uint64_t room = boundary - top.source_offset;
    const std::uint64_t fit = room < inner ? 0 : std::min(dim.count, (room - inner) / dim.source_stride + 1);
    const std::uint64_t beyond = std::min(dim.count, (room + dim.source_stride - 1) / dim.source_stride);
    if (fit > 0) before.push_back(steps(top, d, 0, fit));
    for (std::uint64_t at = fit; at < beyond; ++at) stack.push_back(steps(top, d, at, at + 1));
    if (beyond < dim.count) after.push_back(steps(top, d, beyond, dim.count));
  }
  return true;
}

/// Cuts a copy until none of its steps are far apart, so that its bytes are one range of the file.
void cut_gaps(const Copy& copy, std::vector<Copy>& out) {
  std::vector<Copy> stack{copy};
  while (!stack.empty()) {
    const Copy top = std::move(stack.back());
    stack.pop_back();
    if (!top.dims.empty()) {
      const std::size_t d = widest_dim(top);
      const Copy::Dim& dim = top.dims[d];
      const std::uint64_t inner = source_span(top) - (dim.count - 1) * dim.source_stride;
      if (dim.count > 1 && dim.source_stride > inner + kGap) {
        for (std::uint64_t at = 0; at < dim.count; ++at) stack.push_back(steps(top, d, at, at + 1));
        continue;
      }
    }
    out.push_back(top);
  }
}

void merge(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  std::vector<Extent> merged;
  for (const Extent& extent : extents) {
    if (!merged.empty() && extent.begin <= merged.back().end + kGap) {
      merged.back().end = std::max(merged.back().end, extent.end);
    } else {
      merged.push_back(extent);
    }
  }
  extents = std::move(merged);
}

/// Cuts a copy at the ends of its source file's leaves.
Result<> add_leaf_copies(const Copy& copy, std::uint32_t request, std::vector<LoadPlan::Scatter>& out) {
  std::vector<Copy> rest{copy};
  while (!rest.empty()) {
    const Copy top = std::move(rest.back());
    rest.pop_back();
    const std::uint64_t leaf = top.source_offset / kLeafBytes;
    std::vector<Copy> before;
    if (!cut_at(top, (leaf + 1) * kLeafBytes, before, rest)) {
      return fail(Errc::unsupported, "an element of the file crosses a boundary of 4 MiB");
    }
    std::vector<Copy> parts;
    for (const Copy& part : before) cut_gaps(part, parts);
    for (Copy& part : parts) out.push_back({.copy = std::move(part), .request = request, .leaf = leaf});
  }
  return {};
}

}  // namespace

Result<LoadPlan> LoadPlan::make(const Map& map, std::span<const PartRead> requests, const LeavesOf& leaves,
                                const Options& options) {
  CKPT_TRY(std::vector<Scatter> scatters, collect(map, requests));
  return of(map, std::move(scatters), leaves, options);
}

/// Joins the map with the memory by the one planner, as if each request were a file; its copies are then reversed.
Result<std::vector<LoadPlan::Scatter>> LoadPlan::collect(const Map& map, std::span<const PartRead> requests) {
  std::vector<TargetFile> memory;
  std::vector<std::uint32_t> owners;
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    const Tensor& tensor = map.tensors[requests[i].tensor];
    CKPT_TRY(const std::uint64_t bits,
             checked_mul(requests[i].chunk.volume(), std::uint64_t{dtype_bits(tensor.dtype)}));
    if (bits == 0) continue;
    TargetFile file{.path = tensor.name, .bytes = bits / 8};
    file.placements.push_back({.offset = 0,
                               .bytes = bits / 8,
                               .tensor = requests[i].tensor,
                               .chunk = requests[i].chunk,
                               .dtype = tensor.dtype});
    memory.push_back(std::move(file));
    owners.push_back(i);
  }
  std::vector<Scatter> scatters;
  CKPT_TRY(const Plan plan, Plan::make(map, std::move(memory)));
  for (std::uint64_t n = 0; n < plan.totals().leaves; ++n) {
    CKPT_TRY(LeafJob job, plan.leaf(n));
    for (Copy& copy : job.copies) {
      if (copy.compressed) {
        return fail({.code = Errc::unsupported,
                     .message = map.tensors[copy.tensor].name + ": compressed data is not read in parts",
                     .tensor = map.tensors[copy.tensor].name,
                     .hint = "'ckpt convert' decodes the checkpoint"});
      }
      copy.target_offset += job.leaf * kLeafBytes;
      CKPT_CHECK(add_leaf_copies(copy, owners[job.file], scatters));
    }
  }
  std::sort(scatters.begin(), scatters.end(), [](const Scatter& a, const Scatter& b) {
    const auto key = [](const Scatter& s) {
      return std::tie(s.copy.source_file, s.leaf, s.copy.source_offset, s.request, s.copy.target_offset);
    };
    return key(a) < key(b);
  });
  return scatters;
}

LoadPlan LoadPlan::of(const Map& map, std::vector<Scatter> scatters, const LeavesOf& leaves, const Options& options) {
  LoadPlan plan;
  plan.scatters_ = std::move(scatters);
  for (const Scatter& scatter : plan.scatters_) plan.needed_bytes_ += target_volume(scatter.copy);
  plan.make_units(map, leaves, options);
  return plan;
}

void LoadPlan::make_units(const Map& map, const LeavesOf& leaves, const Options& options) {
  for (std::size_t at = 0; at < scatters_.size();) {
    Unit unit{.file = scatters_[at].copy.source_file, .leaf = scatters_[at].leaf, .first_scatter = at};
    while (at < scatters_.size() && scatters_[at].copy.source_file == unit.file && scatters_[at].leaf == unit.leaf) {
      const Copy& copy = scatters_[at++].copy;
      unit.extents.push_back({copy.source_offset, copy.source_offset + source_span(copy)});
    }
    unit.end_scatter = at;
    merge(unit.extents);
    std::uint64_t bytes = 0;
    for (const Extent& extent : unit.extents) bytes += extent.size();

    const std::uint64_t begin = unit.leaf * kLeafBytes;
    const std::uint64_t end = std::min(begin + kLeafBytes, map.files[unit.file].bytes);
    const std::uint64_t spare = std::max(kGap * unit.extents.size(), (end - begin) / kSpareShare);
    const bool hashed = unit.leaf < leaves(unit.file).size();
    unit.whole = hashed && (options.whole_leaves || end - begin <= bytes + spare);
    if (unit.whole) unit.extents = {{begin, end}};
    for (const Extent& extent : unit.extents) read_bytes_ += extent.size();
    add_target(unit);
    units_.push_back(std::move(unit));
  }
}

void LoadPlan::add_target(const Unit& unit) {
  TargetFile file;
  for (const Extent& extent : unit.extents) {
    file.placements.push_back({.offset = file.bytes,
                               .bytes = extent.size(),
                               .from = Placement::From::raw,
                               .raw_file = unit.file,
                               .raw_offset = extent.begin});
    file.bytes += extent.size();
  }
  targets_.push_back(std::move(file));
}

}  // namespace ckpt
