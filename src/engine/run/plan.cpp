#include "engine/run/plan.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "engine/run/siblings.hpp"
#include "format/checked.hpp"
#include "format/model/chunk_form.hpp"

namespace ckpt {
namespace {

/// A part of a placement that is a box of the tensor, and where its first element goes.
struct TargetBox {
  Box box;
  std::uint64_t offset = 0;            // bytes from the start of the leaf
  std::vector<std::uint64_t> strides;  // bytes, one per dimension
};

constexpr std::uint64_t kRowRatio = 8;  // rows this many times what all siblings need are not read whole

/// Where a file takes a part of the rows that its source holds, what is around a copy in them.
///
/// own      what the file has of the tensor, and each of its siblings
/// held     a box of the source's, of which the copy takes `common`
/// strides  of the source, in elements
void set_row(Copy& copy, const Box& own, std::size_t siblings, const Box& held, const Box& common,
             const std::vector<std::int64_t>& strides) {
  for (std::size_t d = held.size.size(); d-- > 1;) {
    if (own.size[d] >= held.size[d]) continue;
    if (held.size[d] / kRowRatio > own.size[d] * siblings) return;
    const auto step = static_cast<std::uint64_t>(strides[d]);
    const std::uint64_t row = held.size[d] * step;
    for (std::size_t above = 0; above < d; ++above)
      if (held.size[above] > 1 && static_cast<std::uint64_t>(strides[above]) < row) return;
    for (std::size_t below = d + 1; below < held.size.size(); ++below)
      if (held.size[below] * static_cast<std::uint64_t>(strides[below]) > step) return;
    if (row * copy.unit > kLeafBytes) return;  // no buffer holds it
    copy.row_bytes = static_cast<std::uint32_t>(row * copy.unit);
    copy.row_before = static_cast<std::uint32_t>((common.offset[d] - held.offset[d]) * step * copy.unit);
    return;
  }
}

/// Merges dimensions that follow each other on both sides and drops those of one step.
void normalise(std::vector<Copy::Dim>& dims) {
  std::vector<Copy::Dim> out;
  for (const Copy::Dim& dim : dims) {
    if (dim.count == 1) continue;
    if (!out.empty() && out.back().source_stride == dim.source_stride * dim.count &&
        out.back().target_stride == dim.target_stride * dim.count) {
      out.back() = {out.back().count * dim.count, dim.source_stride, dim.target_stride};
    } else {
      out.push_back(dim);
    }
  }
  dims = std::move(out);
}

/// Adds a copy from a source that holds the tensor transposed, of which a leaf takes some of the columns of each row. All
/// leaves find the same rows without knowing where the source's begin: as ranges of the file, of the length of a row, whose
/// ends divide a copy. The last row is apart if its range passes the end of the file.
///
/// copy        has one dimension for each of `size`, what it takes
/// file_bytes  of the source's file
void add_transposed(Copy copy, const Shape& size, const std::vector<std::int64_t>& strides, std::uint64_t file_bytes,
                    std::vector<Copy>& out) {
  std::optional<std::size_t> columns;  // there may be one, at the ends of a leaf
  std::optional<std::size_t> rows;
  bool is_one = true;  // step from row to row
  for (std::size_t d = 0; d < size.size(); ++d) {
    if (strides[d] == 1) {
      columns = d;
    } else if (size[d] > 1) {
      is_one = is_one && !rows;
      rows = d;
    }
  }
  const std::uint64_t row = rows ? copy.dims[*rows].source_stride : 0;
  if (!columns || !is_one || row <= size[*columns] * copy.unit || row > kLeafBytes) {
    normalise(copy.dims);
    out.push_back(std::move(copy));
    return;
  }
  const std::uint64_t begin = copy.source_offset % copy.unit;  // of the first range
  const auto add = [&](std::uint64_t first_column, std::uint64_t column_count, std::uint64_t first_row,
                       std::uint64_t row_count, bool is_shared) {
    if (column_count == 0 || row_count == 0) return;
    Copy part = copy;
    part.source_offset += first_column * copy.unit + first_row * row;
    part.target_offset += first_column * copy.dims[*columns].target_stride + first_row * copy.dims[*rows].target_stride;
    part.dims[*columns].count = column_count;
    part.dims[*rows].count = row_count;
    if (is_shared) {
      part.row_bytes = static_cast<std::uint32_t>(row);
      part.row_before = static_cast<std::uint32_t>((part.source_offset - begin) % row);
      part.row_first = (part.source_offset - begin) / row;
    }
    normalise(part.dims);
    out.push_back(std::move(part));
  };
  const std::uint64_t column_count = size[*columns];
  const std::uint64_t row_count = size[*rows];
  const std::uint64_t before = (copy.source_offset - begin) % row;
  const std::uint64_t in_first = std::min(column_count, (row - before) / copy.unit);
  for (const Extent part : {Extent{0, in_first}, Extent{in_first, column_count}}) {
    const std::uint64_t first = copy.source_offset + part.begin * copy.unit - begin;
    const bool passes = (first / row + row_count) * row + begin > file_bytes;
    add(part.begin, part.size(), 0, row_count - (passes ? 1 : 0), true);
    if (passes) add(part.begin, part.size(), row_count - 1, 1, false);
  }
}

/// Joins one placement's share of one leaf with the source chunks of its tensor, or of the twin that is compared with
/// it: then every chunk is a check.
class Join {
 public:
  enum class Replicas : std::uint8_t { leave, check };
  Join(const Map& source, const Placement& placement, std::uint32_t index, Replicas replicas, LeafJob& job)
      : files_(source.files),
        tensor_(source.tensors[index]),
        placement_(placement),
        index_(index),
        is_twin_(index != placement.tensor),
        check_replicas_(is_twin_ || replicas == Replicas::check),
        job_(job),
        unit_(unit_bytes(placement.dtype)),
        packed_(is_packed(tensor_.dtype)),
        whole_(Box::whole(packed_ ? byte_shape(tensor_) : tensor_.shape)) {}

  /// [begin, end): bytes of the placement; leaf_offset: where `begin` goes.
  Result<> run(const ChunkIndex& chunks, std::uint64_t begin, std::uint64_t end, std::uint64_t leaf_offset) {
    Chunk wanted{.box = whole_};
    if (placement_.chunk) {
      CKPT_TRY(wanted, unpacked(*placement_.chunk));
    }
    const Box& outer = wanted.box;
    const std::uint64_t first = wanted.flat ? wanted.flat->begin : 0;
    const Extent elements{first + begin / unit_, first + end / unit_};
    if (outer == whole_) return runs(chunks, elements, leaf_offset);

    std::vector<Box> parts;
    split_flat(outer, elements, parts);
    for (Box& part : parts) {
      TargetBox target{.box = std::move(part)};
      target.offset = leaf_offset + (linear_index(outer, target.box.offset) - elements.begin) * unit_;
      for (const std::int64_t stride : row_major_strides(outer.size)) {
        target.strides.push_back(static_cast<std::uint64_t>(stride) * unit_);
      }
      CKPT_CHECK(boxes(chunks, target));
    }
    return {};
  }

 private:
  /// Packed tensors are moved as bytes, in boxes and runs of byte_shape.
  Result<Chunk> unpacked(const Chunk& chunk) const {
    if (!packed_) return chunk;
    if (auto bytes = in_bytes(chunk, tensor_)) return *std::move(bytes);
    return fail({.code = Errc::unsupported,
                 .message = tensor_.name + ": a packed tensor is cut inside a byte",
                 .tensor = tensor_.name});
  }

  /// Visits the chunks that overlap `needed`, a range of the tensor's elements, or of its bytes if it is packed.
  Result<> each_chunk(const ChunkIndex& chunks, Extent needed, const ChunkVisitor& visit) const {
    if (!packed_) return chunks.chunks(index_, needed, visit);
    const std::uint64_t bits = dtype_bits(tensor_.dtype);
    const Extent elements{needed.begin * 8 / bits, (needed.end * 8 + bits - 1) / bits};
    return chunks.chunks(index_, elements, [&](const PlacedChunk& placed) -> Result<> {
      if (!placed.where.strides.empty()) {
        return fail({.code = Errc::unsupported,
                     .message = tensor_.name + ": a packed tensor with strides",
                     .tensor = tensor_.name});
      }
      PlacedChunk bytes{.chunk = {}, .where = placed.where};
      CKPT_TRY(bytes.chunk, unpacked(placed.chunk));
      return visit(bytes);
    });
  }

  Copy copy_of(const Locator& where) const {
    Copy copy;
    copy.source_file = where.file;
    copy.from = where.dtype;
    copy.through = tensor_.dtype;
    copy.to = is_twin_ ? tensor_.dtype : placement_.dtype;
    copy.held = placement_.dtype;
    copy.unit = unit_bytes(where.dtype);
    copy.big_endian = where.big_endian;
    copy.of_twin = is_twin_;
    copy.tensor = index_;
    copy.crc = where.crc;
    copy.compressed = where.compressed;
    return copy;
  }

  /// The target of the first holder's copies.
  std::vector<Copy>& copies() { return is_twin_ ? job_.checks : job_.copies; }

  Error uncovered(std::uint64_t covered, std::uint64_t wanted) const {
    return {.code = Errc::uncovered,
            .message = tensor_.name + ": " + std::to_string(wanted - covered) + " of " + std::to_string(wanted) +
                       " elements are in no file",
            .tensor = tensor_.name};
  }

  /// The target is a run of the tensor's own row-major order: sources that are runs too give plain copies.
  Result<> runs(const ChunkIndex& chunks, Extent elements, std::uint64_t leaf_offset) {
    std::uint64_t at = elements.begin;  // everything before is covered by runs
    bool only_runs = true;
    CKPT_CHECK(each_chunk(chunks, elements, [&](const PlacedChunk& placed) -> Result<> {
      if (placed.chunk.box != whole_ || !placed.where.strides.empty()) {
        only_runs = false;
        return {};
      }
      const Extent held = placed.chunk.flat.value_or(Extent{0, volume(whole_.size)});
      const std::uint64_t end = std::min(held.end, elements.end);
      const bool replica = end <= at;
      const std::uint64_t begin = std::max(held.begin, replica ? elements.begin : at);
      if (begin >= end || (replica && !check_replicas_)) return {};
      if (held.begin > at) {  // a gap, or an index that does not visit in order: the general join decides
        only_runs = false;
        return {};
      }
      Copy copy = copy_of(placed.where);
      copy.source_offset = placed.where.offset + (begin - held.begin) * copy.unit;
      copy.target_offset = leaf_offset + (begin - elements.begin) * unit_;
      if (end - begin > 1) copy.dims = {{end - begin, copy.unit, unit_}};
      (replica ? job_.checks : copies()).push_back(std::move(copy));
      at = std::max(at, end);
      return {};
    }));
    if (at >= elements.end) return {};
    if (only_runs) return fail(uncovered(at - elements.begin, elements.size()));

    std::vector<Box> parts;
    split_flat(whole_, {at, elements.end}, parts);
    for (Box& part : parts) {
      TargetBox target{.box = std::move(part)};
      target.offset = leaf_offset + (linear_index(whole_, target.box.offset) - elements.begin) * unit_;
      for (const std::int64_t stride : row_major_strides(whole_.size)) {
        target.strides.push_back(static_cast<std::uint64_t>(stride) * unit_);
      }
      CKPT_CHECK(boxes(chunks, target));
    }
    return {};
  }

  Result<> boxes(const ChunkIndex& chunks, const TargetBox& target) {
    Shape last = target.box.offset;
    for (std::size_t d = 0; d < last.size(); ++d) last[d] += target.box.size[d] - 1;
    const Extent span{linear_index(whole_, target.box.offset), linear_index(whole_, last) + 1};
    std::uint64_t covered = 0;
    std::unordered_set<std::uint64_t> used;  // first elements; replicas hold equal boxes: the first one serves
    std::vector<Box> parts;
    CKPT_CHECK(each_chunk(chunks, span, [&](const PlacedChunk& placed) -> Result<> {
      const Box& outer = placed.chunk.box;
      parts.clear();
      if (placed.chunk.flat) {
        split_flat(outer, *placed.chunk.flat, parts);
      } else {
        parts.push_back(outer);
      }
      const std::vector<std::int64_t> strides =
          placed.where.strides.empty() ? row_major_strides(outer.size) : placed.where.strides;
      const std::uint64_t flat_begin = placed.chunk.flat ? placed.chunk.flat->begin : 0;
      for (const Box& part : parts) {
        const auto common = intersect(part, target.box);
        if (!common) continue;
        const bool replica = !used.insert(linear_index(whole_, common->offset)).second;
        if (replica && !check_replicas_) continue;
        if (!replica) covered += volume(common->size);
        Copy copy = copy_of(placed.where);
        std::uint64_t source = 0;
        std::uint64_t offset = target.offset;
        for (std::size_t d = 0; d < common->size.size(); ++d) {
          const auto stride = static_cast<std::uint64_t>(strides[d]);
          source += (common->offset[d] - outer.offset[d]) * stride;
          offset += (common->offset[d] - target.box.offset[d]) * target.strides[d];
          copy.dims.push_back({common->size[d], stride * copy.unit, target.strides[d]});
        }
        copy.source_offset = placed.where.offset + (source - flat_begin) * copy.unit;
        copy.target_offset = offset;
        std::vector<Copy>& out = replica ? job_.checks : copies();
        const bool shares = job_.siblings > 1 && !packed_ && !placed.where.compressed;
        if (shares && job_.transposed) {
          add_transposed(std::move(copy), common->size, strides, files_[placed.where.file].bytes, out);
          continue;
        }
        if (shares && placement_.chunk) set_row(copy, placement_.chunk->box, job_.siblings, part, *common, strides);
        normalise(copy.dims);
        out.push_back(std::move(copy));
      }
      return {};
    }));
    if (covered != volume(target.box.size)) return fail(uncovered(covered, volume(target.box.size)));
    return {};
  }

  const std::vector<MapFile>& files_;
  const Tensor& tensor_;
  const Placement& placement_;
  std::uint32_t index_;
  bool is_twin_;
  bool check_replicas_;
  LeafJob& job_;
  std::uint64_t unit_;
  bool packed_;
  Box whole_;  // of elements, or of bytes if the dtype is packed
};

Result<> check_file(const Map& source, const TargetFile& file) {
  std::uint64_t at = 0;
  for (const Placement& placement : file.placements) {
    const bool inside =
        placement.offset >= at && placement.bytes <= file.bytes && placement.offset <= file.bytes - placement.bytes;
    const bool aligned =
        placement.from != Placement::From::tensor || placement.offset % unit_bytes(placement.dtype) == 0;
    const bool known = placement.from != Placement::From::tensor || placement.tensor < source.tensors.size();
    const bool paired =
        !placement.twin || (known && *placement.twin < source.tensors.size() && *placement.twin != placement.tensor &&
                            source.tensors[*placement.twin].shape == source.tensors[placement.tensor].shape &&
                            !is_packed(placement.dtype) && !is_packed(source.tensors[*placement.twin].dtype));
    if (!paired) return fail(Errc::internal, file.path + ": a twin is of another shape, or packed");
    if (!inside || !aligned || !known) {
      return fail(Errc::internal, file.path + ": a placement at " + std::to_string(placement.offset) +
                                      " overlaps, is unaligned or passes the end of the file");
    }
    at = placement.offset + placement.bytes;
  }
  return {};
}

/// Late fields are in file order, and in no range; ranges are equal or disjoint.
Result<> check_late(const TargetFile& file) {
  if (file.late.empty()) return {};
  std::vector<Extent> taken;
  taken.reserve(2 * file.late.size());
  for (const LateField& field : file.late) taken.push_back(field.covers);
  std::ranges::sort(taken, {}, &Extent::begin);
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  const auto ranges = static_cast<std::ptrdiff_t>(taken.size());
  for (const LateField& field : file.late) taken.push_back({field.offset, field.offset + LateField::kBytes});
  std::inplace_merge(taken.begin(), taken.begin() + ranges, taken.end(),
                     [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const Extent& extent : taken) {
    if (extent.begin < at || extent.end <= extent.begin || extent.end > file.bytes)
      return fail(Errc::internal, file.path + ": a late field at " + std::to_string(extent.begin) +
                                      " overlaps or passes the end of the file");
    at = extent.end;
  }
  return {};
}

/// The most placements of which a leaf holds bytes.
std::uint64_t most_in_a_leaf(const TargetFile& file) {
  std::uint64_t most = 0;
  std::uint64_t count = 0;
  std::uint64_t leaf = 0;
  for (const Placement& placement : file.placements) {
    if (placement.bytes == 0) continue;
    const std::uint64_t first = placement.offset / kLeafBytes;
    count = first == leaf ? count + 1 : 1;
    leaf = (placement.offset + placement.bytes - 1) / kLeafBytes;  // a longer one is the first of its last leaf
    most = std::max(most, count);
    if (leaf != first) count = 1;
  }
  return most;
}

}  // namespace

Result<Plan> Plan::make(const Map& source, std::vector<TargetFile> targets, Options options) {
  Plan plan;
  plan.options_ = options;
  plan.source_ = &source;
  plan.targets_ = std::move(targets);
  for (const TargetFile& file : plan.targets_) {
    CKPT_CHECK(check_file(source, file));
    CKPT_CHECK(check_late(file));
    plan.first_leaf_.push_back(plan.totals_.leaves);
    plan.totals_.leaves += file.leaf_count();
    plan.totals_.target_bytes += file.bytes;
    plan.totals_.placements += file.placements.size();
    plan.totals_.most_placements = std::max(plan.totals_.most_placements, most_in_a_leaf(file));
    for (const Placement& placement : file.placements) {
      if (placement.from == Placement::From::literal) continue;
      plan.totals_.source_bytes +=
          placement.from == Placement::From::raw || is_packed(placement.dtype)
              ? placement.bytes
              : placement.bytes / unit_bytes(placement.dtype) * unit_bytes(source.tensors[placement.tensor].dtype);
    }
  }
  plan.find_leads();
  plan.order_leaves();
  if (plan.leads_.empty()) {
    CKPT_CHECK(plan.order_siblings());
    if (plan.groups_.empty()) CKPT_CHECK(plan.find_transposed_leaves());
  }
  return plan;
}

/// Tensors that are both placed whole.
void Plan::find_leads() {
  if (source_->derived.empty()) return;
  std::unordered_map<std::uint32_t, Lead> places;
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    for (const Placement& placement : targets_[f].placements) {
      if (placement.from != Placement::From::tensor || placement.chunk || is_packed(placement.dtype)) continue;
      places.emplace(placement.tensor, Lead{first_leaf_[f], placement.offset, unit_bytes(placement.dtype)});
    }
  }
  for (const Derived& derived : source_->derived) {
    const auto lead = places.find(derived.from);
    if (lead != places.end() && places.count(derived.tensor) != 0) leads_.emplace(derived.tensor, lead->second);
  }
}

void Plan::order_leaves() {
  if (leads_.empty()) return;
  std::vector<std::uint64_t> after(static_cast<std::size_t>(totals_.leaves));  // the leaf that each comes after
  std::vector<bool> moved(after.size(), false);
  std::iota(after.begin(), after.end(), std::uint64_t{0});
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    for (const Placement& placement : targets_[f].placements) {
      const auto lead = placement.from == Placement::From::tensor ? leads_.find(placement.tensor) : leads_.end();
      if (lead == leads_.end() || placement.chunk || placement.bytes == 0) continue;
      const std::uint64_t end = placement.offset + placement.bytes;
      for (std::uint64_t leaf = placement.offset / kLeafBytes; leaf * kLeafBytes < end; ++leaf) {
        const std::uint64_t last = std::min((leaf + 1) * kLeafBytes, end) - 1 - placement.offset;
        const auto index = static_cast<std::size_t>(first_leaf_[f] + leaf);
        after[index] = lead->second.first_leaf + lead->second.byte_of(last / unit_bytes(placement.dtype)) / kLeafBytes;
        moved[index] = true;
      }
    }
  }
  ordered_ = true;
  order_.resize(after.size());
  std::iota(order_.begin(), order_.end(), std::uint64_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint64_t a, std::uint64_t b) {
    return std::pair(after[a], moved[a] ? 1 : 0) < std::pair(after[b], moved[b] ? 1 : 0);
  });
}

/// The same leaves of all files of a group, one group after another.
Result<> Plan::order_siblings() {
  CKPT_TRY(groups_, find_siblings(*source_, targets_));
  if (groups_.empty()) return {};
  group_of_.assign(targets_.size(), kAlone);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    siblings_ = std::max(siblings_, groups_[g].size());
    for (const std::size_t file : groups_[g]) group_of_[file] = g;
  }
  order_.reserve(static_cast<std::size_t>(totals_.leaves));
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    const std::vector<std::size_t> files = group_of_[f] == kAlone ? std::vector{f} : groups_[group_of_[f]];
    if (files.front() != f) continue;
    for (std::uint64_t leaf = 0; leaf < targets_[f].leaf_count(); ++leaf)
      for (const std::size_t file : files) order_.push_back(first_leaf_[file] + leaf);
  }
  ordered_ = true;
  return {};
}

/// They follow each other already.
Result<> Plan::find_transposed_leaves() {
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    CKPT_TRY(const std::vector<Extent> ranges, find_transposed(*source_, targets_[f]));
    for (const Extent& range : ranges) {
      transposed_.push_back({first_leaf_[f] + range.begin, first_leaf_[f] + range.end});
      siblings_ = std::max(siblings_, static_cast<std::size_t>(range.size()));
    }
  }
  return {};
}

/// The range of a leaf that needs the same rows as others of its file; else null.
const Extent* Plan::transposed_with(std::uint64_t leaf) const {
  const auto after = std::ranges::upper_bound(transposed_, leaf, {}, &Extent::begin);
  if (after == transposed_.begin()) return nullptr;
  const Extent& range = *std::prev(after);
  return leaf < range.end ? &range : nullptr;
}

std::size_t Plan::together(std::uint64_t position) const {
  if (const Extent* const range = transposed_with(leaf_at(position)); range != nullptr)
    return range->begin == leaf_at(position) ? static_cast<std::size_t>(range->size()) : 0;
  if (groups_.empty()) return 1;
  const auto after = std::upper_bound(first_leaf_.begin(), first_leaf_.end(), leaf_at(position));
  const auto file = static_cast<std::size_t>(after - first_leaf_.begin() - 1);
  if (group_of_[file] == kAlone) return 1;
  const std::vector<std::size_t>& group = groups_[group_of_[file]];
  return group.front() == file ? group.size() : 0;
}

void Plan::skip_leaves(const std::vector<bool>& finished) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t position = 0; position < positions(); ++position) {
    const std::uint64_t leaf = leaf_at(position);
    if (!finished[static_cast<std::size_t>(leaf)]) order.push_back(leaf);
  }
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    for (std::uint64_t leaf = 0; leaf < targets_[f].leaf_count(); ++leaf) {
      if (!finished[static_cast<std::size_t>(first_leaf_[f] + leaf)]) continue;
      left_out_bytes_ += std::min(kLeafBytes, targets_[f].bytes - leaf * kLeafBytes);
    }
  }
  order_ = std::move(order);
  ordered_ = true;
}

Result<> Plan::join(const Placement& placement, std::uint64_t begin, std::uint64_t end, std::uint64_t leaf_offset,
                    LeafJob& job) const {
  const auto replicas = options_.check_replicas ? Join::Replicas::check : Join::Replicas::leave;
  Join join(*source_, placement, placement.tensor, replicas, job);
  if (placement.twin) {
    CKPT_CHECK(Join(*source_, placement, *placement.twin, replicas, job).run(*source_->index, begin, end, leaf_offset));
  }
  const auto lead = placement.chunk ? leads_.end() : leads_.find(placement.tensor);
  if (lead == leads_.end()) return join.run(*source_->index, begin, end, leaf_offset);
  const Lead& whole = lead->second;
  job.follows = true;
  const std::uint64_t unit = unit_bytes(placement.dtype);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t boundary = (whole.byte_of(at / unit) / kLeafBytes + 1) * kLeafBytes;
    const std::uint64_t until = std::min(end, (boundary - whole.offset) / whole.unit * unit);
    CKPT_CHECK(join.run(*source_->index, at, until, leaf_offset + (at - begin)));
    at = until;
  }
  return {};
}

Result<LeafJob> Plan::leaf(std::uint64_t index) const {
  const auto after = std::upper_bound(first_leaf_.begin(), first_leaf_.end(), index);
  LeafJob job;
  job.file = static_cast<std::uint32_t>(after - first_leaf_.begin() - 1);
  const TargetFile* file = &targets_[job.file];
  job.leaf = index - first_leaf_[job.file];
  const std::uint64_t leaf_begin = job.leaf * kLeafBytes;
  const std::uint64_t leaf_end = std::min(leaf_begin + kLeafBytes, file->bytes);
  job.bytes = leaf_end - leaf_begin;
  if (!groups_.empty() && group_of_[job.file] != kAlone) job.siblings = groups_[group_of_[job.file]].size();
  if (const Extent* const range = transposed_with(index); range != nullptr) {
    job.siblings = static_cast<std::size_t>(range->size());
    job.transposed = true;
  }

  const auto& placements = file->placements;
  auto at = std::partition_point(placements.begin(), placements.end(),
                                 [&](const Placement& p) { return p.offset + p.bytes <= leaf_begin; });
  for (; at != placements.end() && at->offset < leaf_end; ++at) {
    const std::uint64_t begin = std::max(at->offset, leaf_begin);
    const std::uint64_t end = std::min(at->offset + at->bytes, leaf_end);
    if (begin >= end) continue;
    switch (at->from) {
      case Placement::From::literal:
        job.literals.push_back(
            {begin - leaf_begin, std::string_view(at->literal).substr(begin - at->offset, end - begin)});
        break;
      case Placement::From::raw: {
        Copy copy;
        copy.source_file = at->raw_file;
        copy.source_offset = at->raw_offset + (begin - at->offset);
        copy.target_offset = begin - leaf_begin;
        copy.tensor = kNoTensor;
        copy.crc = at->raw_crc;
        if (end - begin > 1) copy.dims = {{end - begin, 1, 1}};
        job.copies.push_back(std::move(copy));
        break;
      }
      case Placement::From::tensor: {
        CKPT_CHECK(join(*at, begin - at->offset, end - at->offset, begin - leaf_begin, job));
        break;
      }
    }
  }
  return job;
}

}  // namespace ckpt
