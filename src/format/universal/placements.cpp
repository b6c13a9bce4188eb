#include "format/universal/placements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/model/cut.hpp"
#include "format/universal/mesh_pieces.hpp"

namespace ckpt::universal::placement {
namespace {

template <class... Args>
tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) {
  return fail(Errc::usage, "place tensor: " + fmt::format(format, std::forward<Args>(args)...));
}

/// The layout with the step that was just added to it.
Result<Layout> checked(Layout layout) {
  if (auto sound = check_layout(layout); !sound) return bad("{}", sound.error().message);
  return layout;
}

Result<std::uint64_t> size_of(const Layout& layout, std::uint32_t axis) {
  if (axis >= layout.mesh.axes.size()) return bad("axis {} does not exist", axis);
  return layout.mesh.axes[axis].size;
}

Result<> check_divides(std::uint64_t parts, std::uint64_t length, std::string_view what) {
  if (parts == 0 || length % parts != 0) return bad("{} {} do not divide among {}", length, what, parts);
  return {};
}

Result<Layout> cut(Layout layout, Layout::Cut cut) {
  layout.cuts.push_back(std::move(cut));
  return checked(std::move(layout));
}

/// The product, if it is a valid size.
Result<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  const auto out = checked_mul(a, b);
  if (!out) return bad("a size overflows 64 bits");
  return out;
}

}  // namespace

Result<std::uint32_t> axis(const Mesh& mesh, std::string_view name) {
  for (std::uint32_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].name == name) return i;
  }
  return bad("no axis '{}'", name);
}

Layout replicated(Mesh mesh) {
  return {.kind = Layout::Kind::mesh, .mesh = std::move(mesh)};
}

Result<Layout> fsdp_shard(Layout layout, std::uint32_t dim, std::vector<std::uint32_t> axes) {
  return cut(std::move(layout), {.dim = dim, .axes = std::move(axes), .rule = Layout::Cut::Rule::ceil});
}

Result<Layout> even_shard(Layout layout, std::uint32_t dim, std::vector<std::uint32_t> axes) {
  return cut(std::move(layout), {.dim = dim, .axes = std::move(axes), .rule = Layout::Cut::Rule::even});
}

Result<Layout> tensor_parallel(Layout layout, const Divided& divided) {
  CKPT_TRY(const std::uint64_t ranks, size_of(layout, divided.axis));
  CKPT_CHECK(check_divides(ranks, divided.length, "rows or columns"));
  return even_shard(std::move(layout), divided.dim, {divided.axis});
}

Result<Layout> vocabulary(Layout layout, const Vocabulary& vocabulary) {
  CKPT_TRY(const std::uint64_t ranks, size_of(layout, vocabulary.axis));
  CKPT_TRY(const std::uint64_t multiple, product(vocabulary.divisible_by, ranks));
  if (multiple == 0) return bad("a vocabulary padded to a multiple of 0");
  const std::uint64_t blocks = vocabulary.rows / multiple + (vocabulary.rows % multiple != 0 ? 1 : 0);
  CKPT_TRY(const std::uint64_t part, product(blocks, vocabulary.divisible_by));
  CKPT_CHECK(product(part, ranks));
  Layout::Cut step{.dim = 0, .axes = {vocabulary.axis}, .rule = Layout::Cut::Rule::points};
  for (std::uint64_t rank = 0; rank <= ranks; ++rank)
    step.points.push_back(rank == ranks ? vocabulary.rows : std::min(rank * part, vocabulary.rows));
  return cut(std::move(layout), std::move(step));
}

Result<Layout> grouped_qkv(Layout layout, const GroupedQkv& qkv) {
  CKPT_TRY(const std::uint64_t ranks, size_of(layout, qkv.axis));
  CKPT_CHECK(check_divides(qkv.groups, qkv.heads, "heads"));
  CKPT_CHECK(check_divides(ranks, qkv.groups, "groups of query heads"));
  CKPT_TRY(const std::uint64_t group_rows, product(qkv.heads / qkv.groups + 2, qkv.head_rows));
  CKPT_TRY(const std::uint64_t rows, product(group_rows, qkv.groups));
  return tensor_parallel(std::move(layout), {.axis = qkv.axis, .dim = 0, .length = rows});
}

Result<Layout> stacked(Layout layout, const Stacked& stacked) {
  CKPT_TRY(const std::uint64_t ranks, size_of(layout, stacked.axis));
  for (const std::uint64_t length : stacked.lengths) CKPT_CHECK(check_divides(ranks, length, "stacked rows"));
  return cut(
      std::move(layout),
      {.dim = stacked.dim, .axes = {stacked.axis}, .rule = Layout::Cut::Rule::even, .segments = stacked.lengths});
}

Result<Layout> at_stages(Layout layout, std::uint32_t axis, std::vector<std::uint64_t> stages) {
  CKPT_CHECK(size_of(layout, axis));
  std::sort(stages.begin(), stages.end());
  layout.at.push_back({.axis = axis, .indices = std::move(stages)});
  return checked(std::move(layout));
}

Result<std::uint64_t> stage_of_layer(const Pipeline& pipeline, std::uint64_t layer) {
  CKPT_TRY(const std::uint64_t pieces, product(pipeline.stages, pipeline.virtual_stages));
  CKPT_CHECK(check_divides(pieces, pipeline.layers, "layers"));
  if (layer >= pipeline.layers) return bad("layer {} of {}", layer, pipeline.layers);
  return layer / (pipeline.layers / pieces) % pipeline.stages;
}

Result<Layout> at_expert(Layout layout, const Experts& experts, std::uint64_t expert) {
  CKPT_TRY(const std::uint64_t groups, size_of(layout, experts.axis));
  CKPT_CHECK(check_divides(groups, experts.count, "experts"));
  if (expert >= experts.count) return bad("expert {} of {}", expert, experts.count);
  return at_stages(std::move(layout), experts.axis, {expert / (experts.count / groups)});
}

Result<FlatGroupPlaces> flat_group(const FlatGroupOptions& options) {
  FlatGroupPlaces out;
  out.begins.reserve(options.element_counts.size());
  std::uint64_t end = 0;
  for (const std::uint64_t count : options.element_counts) {
    out.begins.push_back(end);
    const auto next = checked_add(end, count);
    if (!next) return bad("a size overflows 64 bits");
    end = *next;
  }
  const auto group =
      cut::flat_group({.element_count = end, .part_count = options.ranks, .align_factor = options.align_factor});
  if (!group) return bad("{}", group.error().message);
  out.part = group->part_elements;
  return out;
}

Result<Layout> flat_parts(Layout layout, std::vector<std::uint32_t> axes, std::uint64_t part) {
  layout.flat = Layout::Flat{.axes = std::move(axes), .part = part};
  return checked(std::move(layout));
}

Result<Layout> zero3(Layout layout, std::vector<std::uint32_t> axes, std::uint64_t element_count) {
  for (const std::uint32_t axis : axes) CKPT_CHECK(size_of(layout, axis));
  const auto parts = cut::partition({.length = element_count, .part_count = part_count(layout.mesh, axes)});
  if (!parts) return bad("{}", parts.error().message);
  // A parameter without elements still needs parts that a layout can have.
  return flat_parts(std::move(layout), std::move(axes), std::max<std::uint64_t>(parts->part_elements, 1));
}

}  // namespace ckpt::universal::placement
