#include "format/universal/mesh_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "format/checked.hpp"
#include "format/text/error_context.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/mesh_pieces.hpp"

namespace ckpt::universal {
namespace {

template <class... Args>
tl::unexpected<Error> bad_mesh(fmt::format_string<Args...> format, Args&&... args) {
  return fail(Errc::corrupt, fmt::format(format, std::forward<Args>(args)...));
}

Result<> check_mesh(const Mesh& mesh) {
  if (mesh.axes.size() > kMaxAxes) return bad_mesh("axes: more than {}", kMaxAxes);
  std::set<std::string_view> names;
  for (const Axis& axis : mesh.axes) {
    if (axis.name.empty()) return bad_mesh("axes: an axis without a name");
    if (!names.insert(axis.name).second) return bad_mesh("axes: two are named '{}'", axis.name);
  }
  CKPT_CHECK(mesh.writer_count());
  return {};
}

/// Which axes are taken: each by one step of the layout.
class Taken {
 public:
  explicit Taken(const Mesh& mesh) : mesh_(mesh), taken_(mesh.axes.size()) {}

  Result<> take(std::uint32_t axis, std::string_view member) {
    if (axis >= taken_.size()) return bad_mesh("{}: axis {} does not exist", member, axis);
    if (taken_[axis]) return bad_mesh("{}: axis '{}' is used twice", member, mesh_.axes[axis].name);
    taken_[axis] = true;
    return {};
  }
  Result<> take(const std::vector<std::uint32_t>& axes, std::string_view member) {
    if (axes.empty()) return bad_mesh("{}: no axes", member);
    for (const std::uint32_t axis : axes) CKPT_CHECK(take(axis, member));
    return {};
  }

 private:
  const Mesh& mesh_;
  std::vector<bool> taken_;
};

Result<> check_at(const Layout::At& at, const Mesh& mesh) {
  const Axis& axis = mesh.axes[at.axis];
  if (at.indices.empty()) return bad_mesh("at: no index along axis '{}'", axis.name);
  for (std::size_t i = 1; i < at.indices.size(); ++i) {
    if (at.indices[i - 1] >= at.indices[i]) return bad_mesh("at: indices along axis '{}' do not ascend", axis.name);
  }
  if (at.indices.back() >= axis.size)
    return bad_mesh("at: index {} of axis '{}', which has {}", at.indices.back(), axis.name, axis.size);
  return {};
}

Result<> check_cut(const Layout::Cut& cut, const Mesh& mesh, bool first_of_dim) {
  const std::uint64_t parts = part_count(mesh, cut.axes);
  const bool by_points = cut.rule == Layout::Cut::Rule::points;
  if (by_points != !cut.points.empty()) return bad_mesh("cuts: points without their rule, or the rule without them");
  if (by_points && !cut.segments.empty()) return bad_mesh("cuts: points and segments in one cut");
  if (!first_of_dim && (by_points || !cut.segments.empty()))
    return bad_mesh("cuts: dimension {}: points or segments in a further cut of it", cut.dim);
  if (by_points) {
    if (cut.points.size() != parts + 1)
      return bad_mesh("cuts: dimension {}: {} points for {} parts", cut.dim, cut.points.size(), parts);
    if (cut.points.front() != 0 || !std::is_sorted(cut.points.begin(), cut.points.end()))
      return bad_mesh("cuts: dimension {}: points do not ascend from 0", cut.dim);
  }
  if (cut.segments.size() > kMaxSegments) return bad_mesh("cuts: more than {} segments", kMaxSegments);
  std::uint64_t length = 0;
  for (const std::uint64_t segment : cut.segments) {
    CKPT_TRY(length, checked_add(length, segment));
  }
  return {};
}

std::uint64_t segments_length(const Layout::Cut& cut) {
  std::uint64_t length = 0;
  for (const std::uint64_t segment : cut.segments) length += segment;
  return length;
}

Error about(const Tensor& tensor, Error error) {
  return with_tensor(with_context(std::move(error), tensor.name), tensor.name);
}

/// The part that holds most: the first one, but between explicit points.
std::uint64_t longest_part(const Layout::Cut& cut) {
  std::uint64_t longest = 0;
  for (std::uint64_t part = 1; part + 1 < cut.points.size(); ++part) {
    if (cut.points[part + 1] - cut.points[part] > cut.points[longest + 1] - cut.points[longest]) longest = part;
  }
  return longest;
}

/// The flat division must end at or after the end of the longest local array: the search for elements counts its parts.
Result<> check_flat_covers(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                           const std::vector<std::uint64_t>& longest) {
  CKPT_CHECK(checked_add(begin, volume(tensor.shape)));  // so that no sum below overflows, nor later
  LocalDims dims = whole_dims(tensor.shape);
  for (std::size_t i = 0; i < layout.cuts.size(); ++i) {
    const Layout::Cut& cut = layout.cuts[i];
    dims[cut.dim] = cut_ranges(dims[cut.dim], cut, longest[i], part_count(layout.mesh, cut.axes));
  }
  std::uint64_t elements = 1;  // at most those of the tensor, which were counted
  for (const auto& ranges : dims) {
    std::uint64_t length = 0;
    for (const Extent& range : ranges) length += range.size();
    elements *= length;
  }
  if (elements != 0 && begin + elements > part_count(layout.mesh, layout.flat->axes) * layout.flat->part)
    return bad_mesh("flat: its parts end before the tensor does");
  return {};
}

Result<> check_fit(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                   const std::vector<std::uint64_t>& longest) {
  CKPT_CHECK(tensor_bytes(tensor.dtype, tensor.shape));
  if (begin != 0 && !layout.flat) return bad_mesh("begin: {} in a layout without flat", begin);
  for (const Layout::Cut& cut : layout.cuts) {
    if (cut.dim >= tensor.shape.size())
      return bad_mesh("cuts: dimension {} of a tensor that has {}", cut.dim, tensor.shape.size());
    const std::uint64_t length = tensor.shape[cut.dim];
    if (!cut.points.empty() && cut.points.back() != length)
      return bad_mesh("cuts: dimension {}: points end at {}, the dimension at {}", cut.dim, cut.points.back(), length);
    if (!cut.segments.empty() && segments_length(cut) != length)
      return bad_mesh("cuts: dimension {}: segments end at {}, the dimension at {}", cut.dim, segments_length(cut),
                      length);
  }
  return layout.flat ? check_flat_covers(layout, tensor, begin, longest) : Result<>{};
}

Result<std::vector<Chunk>> chunks_of(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                     std::uint64_t writer, bool written) {
  const std::uint64_t elements = volume(tensor.shape);
  if (layout.kind == Layout::Kind::whole || elements == 0) {
    if (writer != 0) return std::vector<Chunk>{};
    return std::vector<Chunk>{{.box = Box::whole(tensor.shape)}};
  }
  if (layout.kind != Layout::Kind::mesh)
    return fail(Errc::internal, "chunks of an irregular or virtual layout follow from no rule");
  CKPT_TRY(const std::uint64_t writers, layout.mesh.writer_count());
  if (writer >= writers) return std::vector<Chunk>{};
  const std::vector<std::uint64_t> coordinates = layout.mesh.coordinates(writer);
  for (const Layout::At& at : layout.at) {
    if (!std::binary_search(at.indices.begin(), at.indices.end(), coordinates[at.axis])) return std::vector<Chunk>{};
  }
  LocalDims dims = whole_dims(tensor.shape);
  for (const Layout::Cut& cut : layout.cuts) {
    dims[cut.dim] = cut_ranges(dims[cut.dim], cut, part_number(layout.mesh, cut.axes, coordinates),
                               part_count(layout.mesh, cut.axes));
  }
  const std::uint64_t flat_part = layout.flat ? part_number(layout.mesh, layout.flat->axes, coordinates) : 0;
  CKPT_TRY(std::vector<Chunk> held, local_chunks(dims, layout, begin, flat_part));
  if (is_packed(tensor.dtype)) {
    for (const Chunk& chunk : held) {
      if (!is_whole_bytes(chunk, tensor))
        return violates(Check::whole_bytes, "elements that share a byte belong to two writers");
    }
  }
  if (!written) return held;
  const Replicas replicas(layout);
  if (replicas.count == 1) return held;
  const std::uint64_t replica = replicas.number(coordinates);
  std::vector<Chunk> out;
  for (Chunk& chunk : held) {
    if (is_shared(chunk, tensor.dtype)) {
      Chunk share = share_of(chunk, tensor.dtype, replica, replicas.count);
      if (share.volume() != 0) out.push_back(std::move(share));
    } else if (owner_of(tensor, replicas.count) == replica) {
      out.push_back(std::move(chunk));
    }
  }
  return out;
}

Result<std::vector<Chunk>> named_chunks(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                        std::uint64_t writer, bool written) {
  auto chunks = chunks_of(layout, tensor, begin, writer, written);
  if (!chunks) return fail(about(tensor, std::move(chunks).error()));
  return chunks;
}

}  // namespace

Result<std::uint64_t> Mesh::writer_count() const {
  std::uint64_t count = 1;
  for (const Axis& axis : axes) {
    if (axis.size == 0) return bad_mesh("axes: '{}' has size 0", axis.name);
    if (axis.size > kMaxWriters / count) return bad_mesh("axes: more than {} writers", kMaxWriters);
    count *= axis.size;
  }
  return count;
}

std::vector<std::uint64_t> Mesh::coordinates(std::uint64_t writer) const {
  std::vector<std::uint64_t> out(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    out[i] = writer % axes[i].size;
    writer /= axes[i].size;
  }
  return out;
}

std::uint64_t Mesh::writer(const std::vector<std::uint64_t>& coordinates) const {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) out = out * axes[i].size + coordinates[i];
  return out;
}

Result<> check_layout(const Layout& layout) {
  if (layout.kind != Layout::Kind::mesh) {
    if (!layout.mesh.axes.empty() || !layout.at.empty() || !layout.cuts.empty() || layout.flat)
      return bad_mesh("kind: axes, at, cuts or flat in a layout that is not a mesh");
    return {};
  }
  CKPT_CHECK(check_mesh(layout.mesh));
  if (layout.cuts.size() > kMaxCuts) return bad_mesh("cuts: more than {}", kMaxCuts);
  Taken taken(layout.mesh);
  for (const Layout::At& at : layout.at) {
    CKPT_CHECK(taken.take(at.axis, "at"));
    CKPT_CHECK(check_at(at, layout.mesh));
  }
  std::set<std::uint32_t> dims;
  for (const Layout::Cut& cut : layout.cuts) {
    CKPT_CHECK(taken.take(cut.axes, "cuts"));
    CKPT_CHECK(check_cut(cut, layout.mesh, dims.insert(cut.dim).second));
    if (layout.flat && !cut.segments.empty() && cut.dim != 0)
      return bad_mesh("flat: after segments of dimension {}; only those of dimension 0 follow each other", cut.dim);
  }
  if (layout.flat) {
    CKPT_CHECK(taken.take(layout.flat->axes, "flat"));
    if (layout.flat->part == 0) return bad_mesh("flat: parts of no elements");
    CKPT_CHECK(checked_mul(part_count(layout.mesh, layout.flat->axes), layout.flat->part));
  }
  return {};
}

Result<> check_layout(const Layout& layout, const Tensor& tensor, std::uint64_t begin) {
  return LayoutFit(layout).check(tensor, begin);
}

LayoutFit::LayoutFit(const Layout& layout) : layout_(layout) {
  if (!layout.flat) return;
  for (const Layout::Cut& cut : layout.cuts) longest_.push_back(longest_part(cut));
}

Result<> LayoutFit::check(const Tensor& tensor, std::uint64_t begin) const {
  if (auto fit = check_fit(layout_, tensor, begin, longest_); !fit) return fail(about(tensor, std::move(fit).error()));
  return {};
}

Result<std::vector<Chunk>> held_chunks(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                       std::uint64_t writer) {
  return named_chunks(layout, tensor, begin, writer, false);
}

Result<std::vector<Chunk>> written_chunks(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                          std::uint64_t writer) {
  return named_chunks(layout, tensor, begin, writer, true);
}

}  // namespace ckpt::universal
