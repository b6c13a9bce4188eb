#include "format/universal/mesh_search.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "format/universal/format_check.hpp"
#include "format/universal/mesh_pieces.hpp"

namespace ckpt::universal {
namespace {

/// The smallest box that holds a range of the row-major order of a tensor.
Box bounding_box(const Shape& shape, Extent elements) {
  Box box = Box::whole(shape);
  std::uint64_t inner = volume(shape);
  std::uint64_t first = elements.begin;
  std::uint64_t last = elements.end - 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    inner /= shape[d];
    box.offset[d] = first / inner;
    box.size[d] = last / inner - first / inner + 1;
    if (box.size[d] != 1) break;
    first %= inner;
    last %= inner;
  }
  return box;
}

class Search {
 public:
  Search(const Layout& layout, const Tensor& tensor, std::uint64_t begin, Extent elements, const WrittenVisitor& visit)
      : layout_(layout),
        tensor_(tensor),
        begin_(begin),
        needed_(bounding_box(tensor.shape, elements)),
        visit_(visit),
        replicas_(layout),
        dims_(whole_dims(tensor.shape)),
        coordinates_(layout.mesh.axes.size(), 0) {
    for (const Layout::At& at : layout.at) coordinates_[at.axis] = at.indices.front();
  }

  /// Takes the cuts from number `depth` on; there are at most kMaxCuts.
  Result<> descend(std::size_t depth) {
    if (depth == layout_.cuts.size()) return divide();
    const Layout::Cut& cut = layout_.cuts[depth];
    const std::uint64_t parts = part_count(layout_.mesh, cut.axes);
    const Extent needed{needed_.offset[cut.dim], needed_.offset[cut.dim] + needed_.size[cut.dim]};
    std::vector<Extent> before = dims_[cut.dim];
    const Extent met = parts_that_meet(before, cut, parts, needed);
    for (std::uint64_t part = met.begin; part < met.end; part = next_part(cut, part)) {
      dims_[cut.dim] = cut_ranges(before, cut, part, parts);
      if (dims_[cut.dim].empty()) continue;
      set_part(layout_.mesh, cut.axes, part, coordinates_);
      CKPT_CHECK(descend(depth + 1));
    }
    dims_[cut.dim] = std::move(before);
    return {};
  }

 private:
  /// The flat parts of one local array that may overlap the needed range.
  Result<> divide() {
    if (!layout_.flat) return give(0);
    Layout boxes = {};  // the same without the division
    CKPT_TRY(const std::vector<Chunk> whole, local_chunks(dims_, boxes, 0, 0));
    std::set<std::uint64_t> parts;
    std::uint64_t base = begin_;
    for (const Chunk& chunk : whole) {
      const Extent span = span_in(chunk.box, needed_);
      if (span.size() != 0) {
        const std::uint64_t last = (base + span.end - 1) / layout_.flat->part;
        for (std::uint64_t part = (base + span.begin) / layout_.flat->part; part <= last; ++part) parts.insert(part);
      }
      base += volume(chunk.box.size);
    }
    for (const std::uint64_t part : parts) {
      set_part(layout_.mesh, layout_.flat->axes, part, coordinates_);
      CKPT_CHECK(give(part));
    }
    return {};
  }

  /// The chunks of one local array, each from its writers.
  Result<> give(std::uint64_t flat_part) {
    CKPT_TRY(const std::vector<Chunk> held, local_chunks(dims_, layout_, begin_, flat_part));
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (is_packed(tensor_.dtype) && !is_whole_bytes(held[i], tensor_))
        return violates(Check::whole_bytes, "elements that share a byte belong to two writers");
      if (!intersect(held[i].box, needed_)) continue;
      Extent by{owner(), owner() + 1};
      const bool shared = replicas_.count != 1 && is_shared(held[i], tensor_.dtype);
      if (shared) by = sharers(held[i], tensor_.dtype, replicas_.count, needed_);
      for (std::uint64_t replica = by.begin; replica < by.end; ++replica) {
        replicas_.set(replica, coordinates_);
        CKPT_CHECK(visit_({.writer = static_cast<std::uint32_t>(layout_.mesh.writer(coordinates_)),
                           .volume = volume_of(held, i, replica),
                           .chunk = shared ? share_of(held[i], tensor_.dtype, replica, replicas_.count) : held[i]}));
      }
    }
    return {};
  }

  std::uint64_t owner() const { return owner_of(tensor_, replicas_.count); }

  /// How many of the chunks before number `i` this replica writes.
  std::uint32_t volume_of(const std::vector<Chunk>& held, std::size_t i, std::uint64_t replica) const {
    if (replicas_.count == 1) return static_cast<std::uint32_t>(i);
    std::uint32_t volume = 0;
    for (std::size_t k = 0; k < i; ++k) {
      const bool writes = is_shared(held[k], tensor_.dtype)
                              ? replica < sharer_count(held[k], tensor_.dtype, replicas_.count)
                              : replica == owner();
      if (writes) ++volume;
    }
    return volume;
  }

  const Layout& layout_;
  const Tensor& tensor_;
  const std::uint64_t begin_;
  const Box needed_;
  const WrittenVisitor& visit_;
  const Replicas replicas_;
  LocalDims dims_;
  std::vector<std::uint64_t> coordinates_;
};

}  // namespace

Result<> search_mesh(const Layout& layout, const Tensor& tensor, std::uint64_t begin, Extent elements,
                     const WrittenVisitor& visit) {
  if (elements.begin >= elements.end) return {};
  auto searched = Search(layout, tensor, begin, elements, visit).descend(0);
  if (!searched) return fail(with_tensor(std::move(searched).error(), tensor.name));
  return {};
}

}  // namespace ckpt::universal
