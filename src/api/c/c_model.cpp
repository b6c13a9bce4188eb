#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "api/c/c_handles.hpp"
#include "format/universal/local_array.hpp"
#include "format/universal/mesh_pieces.hpp"
#include "format/universal/placements.hpp"

namespace ckpt::c {
namespace {

using universal::Layout;

constexpr std::uint64_t kVocabularyMultiple = 128;  // Megatron's --make-vocab-size-divisible-by

Result<std::vector<std::uint32_t>> axes_of(const universal::Mesh& mesh, const char* names) {
  std::vector<std::uint32_t> axes;
  std::string_view rest = names == nullptr ? std::string_view() : names;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const auto found =
        std::find_if(mesh.axes.begin(), mesh.axes.end(), [&](const universal::Axis& a) { return a.name == name; });
    if (found == mesh.axes.end()) return fail(Errc::usage, fmt::format("model: the mesh has no axis '{}'", name));
    axes.push_back(static_cast<std::uint32_t>(found - mesh.axes.begin()));
  }
  if (axes.empty()) return fail(Errc::usage, "model: a step names no axis");
  return axes;
}

/// The numbers of a placement, which has from `least` to `most` of them.
Result<> check_count(const std::vector<std::uint64_t>& numbers, std::size_t least, std::size_t most, const char* what) {
  if (numbers.size() >= least && numbers.size() <= most) return {};
  return fail(Errc::usage, fmt::format("model: {} takes {} numbers, not {}", what, least, numbers.size()));
}

Result<std::uint64_t> length_of(const Shape& shape, std::uint32_t dim, const char* what) {
  if (dim < shape.size()) return shape[dim];
  return fail(Errc::usage, fmt::format("model: {} divides dimension {}, which the tensor does not have", what, dim));
}

/// Elements of every rank's part after cuts that leave all ranks the same.
Result<std::uint64_t> equal_part_elements(const Layout& layout, const Shape& shape) {
  Shape left = shape;
  for (const Layout::Cut& cut : layout.cuts) {
    const std::uint64_t parts = universal::part_count(layout.mesh, cut.axes);
    const auto divides = [&](std::uint64_t length) { return length % parts == 0; };
    const bool equal = cut.dim < left.size() && cut.rule != Layout::Cut::Rule::points && divides(left[cut.dim]) &&
                       std::all_of(cut.segments.begin(), cut.segments.end(), divides);
    if (!equal) return fail(Errc::usage, "model: CKPT_PARTITION can follow only cuts into equal parts");
    left[cut.dim] /= parts;
  }
  std::uint64_t elements = 1;  // fits: the whole tensor does
  for (const std::uint64_t length : left) elements *= length;
  return elements;
}

/// The steps of trainers' own rules.
Result<Layout> placed(const Layout& layout, const ckpt_step& step, const Shape& shape,
                      const std::vector<std::uint32_t>& axes, const std::vector<std::uint64_t>& numbers) {
  namespace placement = universal::placement;
  if (axes.size() != 1 && step.kind != CKPT_PARTITION) return fail(Errc::usage, "model: a placement takes one axis");
  const std::uint32_t axis = axes[0];
  switch (step.kind) {
    case CKPT_COLUMN:
    case CKPT_ROW: {
      const std::uint32_t dim = step.kind == CKPT_COLUMN ? 0 : 1;
      CKPT_TRY(const auto length, length_of(shape, dim, step.kind == CKPT_COLUMN ? "CKPT_COLUMN" : "CKPT_ROW"));
      return placement::tensor_parallel(layout, {.axis = axis, .dim = dim, .length = length});
    }
    case CKPT_VOCABULARY: {
      CKPT_CHECK(check_count(numbers, 0, 1, "CKPT_VOCABULARY"));
      CKPT_TRY(const auto rows, length_of(shape, 0, "CKPT_VOCABULARY"));
      return placement::vocabulary(
          layout, {.axis = axis, .rows = rows, .divisible_by = numbers.empty() ? kVocabularyMultiple : numbers[0]});
    }
    case CKPT_QKV: {
      CKPT_CHECK(check_count(numbers, 3, 3, "CKPT_QKV"));
      CKPT_TRY(const auto rows, length_of(shape, 0, "CKPT_QKV"));
      const placement::GroupedQkv qkv{.axis = axis, .heads = numbers[0], .groups = numbers[1], .head_rows = numbers[2]};
      CKPT_TRY(Layout out, placement::grouped_qkv(layout, qkv));
      // Checked above: the groups divide the heads, and the product is a size.
      if (const std::uint64_t wanted = (qkv.heads / qkv.groups + 2) * qkv.groups * qkv.head_rows; wanted != rows)
        return fail(Errc::usage, fmt::format("model: {} heads in {} groups with {} rows per head are {} rows, not {}",
                                             qkv.heads, qkv.groups, qkv.head_rows, wanted, rows));
      return out;
    }
    case CKPT_GLU: {
      CKPT_TRY(const auto length, length_of(shape, step.dim, "CKPT_GLU"));
      if (length % 2 != 0)
        return fail(Errc::usage, fmt::format("model: CKPT_GLU: {} rows cannot be split into two halves", length));
      return placement::stacked(layout, {.axis = axis, .dim = step.dim, .lengths = {length / 2, length / 2}});
    }
    case CKPT_EXPERT:
      CKPT_CHECK(check_count(numbers, 2, 2, "CKPT_EXPERT"));
      return placement::at_expert(layout, {.axis = axis, .count = numbers[0]}, numbers[1]);
    case CKPT_LAYER: {
      CKPT_CHECK(check_count(numbers, 2, 3, "CKPT_LAYER"));
      const placement::Pipeline pipeline{.layers = numbers[0],
                                         .stages = layout.mesh.axes[axis].size,
                                         .virtual_stages = numbers.size() == 3 ? numbers[2] : 1};
      CKPT_TRY(const std::uint64_t stage, placement::stage_of_layer(pipeline, numbers[1]));
      return placement::at_stages(layout, axis, {stage});
    }
    case CKPT_PARTITION: {
      CKPT_TRY(const std::uint64_t elements, equal_part_elements(layout, shape));
      return placement::zero3(layout, axes, elements);
    }
    default:
      return fail(Errc::usage, fmt::format("model: unknown kind of step {}", step.kind));
  }
}

Result<> add_step(Layout& layout, const ckpt_step& step, const Shape& shape, std::uint64_t& begin) {
  CKPT_TRY(std::vector<std::uint32_t> axes, axes_of(layout.mesh, step.axes));
  if (step.number_count != 0) CKPT_CHECK(need(step.numbers, "numbers"));
  std::vector<std::uint64_t> numbers(step.numbers, step.numbers + step.number_count);
  if (layout.flat) return fail(Errc::usage, "model: CKPT_FLAT or CKPT_PARTITION must be the last step");
  if (step.kind >= CKPT_COLUMN && step.kind <= CKPT_PARTITION) {
    CKPT_TRY(layout, placed(layout, step, shape, axes, numbers));
    return {};
  }
  Layout::Cut cut{.dim = step.dim, .axes = std::move(axes)};
  switch (step.kind) {
    case CKPT_AT:
      if (cut.axes.size() != 1) return fail(Errc::usage, "model: CKPT_AT takes one axis");
      layout.at.push_back({.axis = cut.axes[0], .indices = std::move(numbers)});
      return {};
    case CKPT_FLAT:
      if (numbers.size() != 2) return fail(Errc::usage, "model: CKPT_FLAT takes two numbers: part, begin");
      layout.flat = Layout::Flat{.axes = std::move(cut.axes), .part = numbers[0]};
      begin = numbers[1];
      return {};
    case CKPT_CHUNK:
      cut.rule = Layout::Cut::Rule::ceil;
      break;
    case CKPT_EVEN:
      cut.rule = Layout::Cut::Rule::even;
      break;
    case CKPT_POINTS:
      cut.rule = Layout::Cut::Rule::points;
      cut.points = std::move(numbers);
      break;
    case CKPT_SEGMENTS:
      if (numbers.empty()) return fail(Errc::usage, "model: CKPT_SEGMENTS takes the lengths of the segments");
      cut.rule = Layout::Cut::Rule::even;
      cut.segments = std::move(numbers);
      break;
    default:
      return fail(Errc::usage, fmt::format("model: unknown kind of step {}", step.kind));
  }
  layout.cuts.push_back(std::move(cut));
  return {};
}

Result<Role> role_of(const char* name) {
  const std::string_view text = name == nullptr ? "param" : name;
  for (const Role role : {Role::param, Role::buffer, Role::slot}) {
    if (role_name(role) == text) return role;
  }
  return fail(Errc::usage, fmt::format("'{}' is not a role: param, buffer or slot", text));
}

}  // namespace

Result<Tensor> tensor_of(const ckpt_tensor* given) {
  CKPT_TRY(const ckpt_tensor tensor, read_sized(given, offsetof(ckpt_tensor, slot) + sizeof(void*), "the tensor"));
  CKPT_CHECK(need(tensor.name, "the tensor's name"));
  CKPT_CHECK(need(tensor.dtype, "the tensor's dtype"));
  if (tensor.ndim != 0) CKPT_CHECK(need(tensor.shape, "the tensor's shape"));
  const auto dtype = dtype_from_name(tensor.dtype);
  if (!dtype) {
    const auto meant = dtype_from_torch(tensor.dtype);
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: unknown dtype '{}'", tensor.name, tensor.dtype),
                 .hint = meant ? fmt::format("did you mean {}?", dtype_name(*meant))
                               : "use a safetensors dtype: F32, BF16, F16, I64, U8, ..."});
  }
  Tensor out{.name = tensor.name, .dtype = *dtype, .shape = Shape(tensor.shape, tensor.shape + tensor.ndim)};
  CKPT_TRY(out.role, role_of(tensor.role));
  if (tensor.parameter != nullptr) out.parameter = tensor.parameter;
  if (tensor.slot != nullptr) out.slot = tensor.slot;
  CKPT_TRY(const std::uint64_t bytes, tensor_bytes(out.dtype, out.shape));
  static_cast<void>(bytes);
  return out;
}

}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::guarded;
using ckpt::c::need;

int ckpt_model_new(const ckpt_axis* axes, uint32_t axis_count, ckpt_model** model) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(model, "the output pointer for the model"));
    if (axis_count != 0) CKPT_CHECK(need(axes, "the axes"));
    auto made = std::make_unique<ckpt_model>();
    for (uint32_t i = 0; i < axis_count; ++i) {
      CKPT_CHECK(need(axes[i].name, "an axis's name"));
      made->mesh.axes.push_back({.name = axes[i].name, .size = axes[i].size});
    }
    if (auto fits = ckpt::universal::check_layout({.kind = ckpt::universal::Layout::Kind::mesh, .mesh = made->mesh});
        !fits) {
      return ckpt::fail(ckpt::Errc::usage, "model: " + fits.error().message);
    }
    *model = made.release();
    return {};
  });
}

void ckpt_model_free(ckpt_model* model) {
  delete model;
}

int ckpt_model_tensor(ckpt_model* model, const ckpt_tensor* tensor, const ckpt_step* steps, uint32_t step_count) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(model, "the model"));
    if (step_count != 0) CKPT_CHECK(need(steps, "the steps"));
    CKPT_TRY(ckpt::Tensor declared, ckpt::c::tensor_of(tensor));
    ckpt::universal::Layout layout{.kind = ckpt::universal::Layout::Kind::mesh, .mesh = model->mesh};
    std::uint64_t begin = 0;
    for (uint32_t i = 0; i < step_count; ++i) CKPT_CHECK(ckpt::c::add_step(layout, steps[i], declared.shape, begin));
    if (auto fits = ckpt::universal::check_layout(layout); fits) {
      fits = ckpt::universal::check_layout(layout, declared, begin);
      if (!fits) return ckpt::fail(ckpt::Errc::usage, fits.error().message);
    } else {
      return ckpt::fail(ckpt::Errc::usage, declared.name + ": " + fits.error().message);
    }
    // There are few layouts: one per way of cutting, whatever the number of tensors.
    const auto same = std::find(model->layouts.begin(), model->layouts.end(), layout);
    const auto index = static_cast<std::uint32_t>(same - model->layouts.begin());
    if (same == model->layouts.end()) model->layouts.push_back(std::move(layout));
    model->rows.push_back({.tensor = std::move(declared), .layout = index, .begin = begin});
    return {};
  });
}

int ckpt_model_part_bytes(const ckpt_model* model, const char* name, uint64_t rank, uint64_t* bytes) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(model, "the model"));
    CKPT_CHECK(need(name, "the name"));
    CKPT_CHECK(need(bytes, "the output pointer for the bytes"));
    for (const ckpt::universal::TensorRow& row : model->rows) {
      if (row.tensor.name != name) continue;
      CKPT_TRY(const auto held, ckpt::universal::held_chunks(model->layouts[row.layout], row.tensor, row.begin, rank));
      *bytes = ckpt::chunk_bytes(held, row.tensor.dtype);
      return {};
    }
    return ckpt::fail(ckpt::Errc::not_found, fmt::format("{}: not in the model", name));
  });
}

int ckpt_flat_group(const uint64_t* counts, uint64_t count, uint64_t ranks, uint64_t align_factor, uint64_t* part,
                    uint64_t* begins) {
  return guarded([&]() -> Result<> {
    if (count != 0) CKPT_CHECK(need(counts, "the element counts"));
    if (count != 0) CKPT_CHECK(need(begins, "the output pointer for the begins"));
    CKPT_CHECK(need(part, "the output pointer for the part"));
    CKPT_TRY(const auto places, ckpt::universal::placement::flat_group(
                                    {.element_counts = {counts, count}, .ranks = ranks, .align_factor = align_factor}));
    *part = places.part;
    std::copy(places.begins.begin(), places.begins.end(), begins);
    return {};
  });
}

int ckpt_run_set_model(ckpt_run* run, const ckpt_model* model) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(run, "the run"));
    CKPT_CHECK(need(model, "the model"));
    CKPT_CHECK(run->owner.check());
    CKPT_TRY(ckpt::Model made, ckpt::Model::make(model->layouts, model->rows));
    run->opened->run->set_model(std::move(made));
    return {};
  });
}
