#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "api/c/c_handles.hpp"
#include "writers/local_array.hpp"

namespace ckpt::c {
namespace {

using universal::Layout;

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

Result<> add_step(Layout& layout, const ckpt_step& step, std::uint64_t& begin) {
  CKPT_TRY(std::vector<std::uint32_t> axes, axes_of(layout.mesh, step.axes));
  if (step.number_count != 0) CKPT_CHECK(need(step.numbers, "numbers"));
  std::vector<std::uint64_t> numbers(step.numbers, step.numbers + step.number_count);
  if (layout.flat) return fail(Errc::usage, "model: CKPT_FLAT is the last step");
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
      return fail(Errc::usage, fmt::format("model: no kind of step has the number {}", step.kind));
  }
  layout.cuts.push_back(std::move(cut));
  return {};
}

Result<Role> role_of(const char* name) {
  const std::string_view text = name == nullptr ? "param" : name;
  for (const Role role : {Role::param, Role::buffer, Role::slot}) {
    if (role_name(role) == text) return role;
  }
  return fail(Errc::usage, fmt::format("'{}' is no role: param, buffer or slot", text));
}

}  // namespace

Result<Tensor> tensor_of(const ckpt_tensor* given) {
  CKPT_TRY(const ckpt_tensor tensor, read_sized(given, offsetof(ckpt_tensor, slot) + sizeof(void*), "the tensor"));
  CKPT_CHECK(need(tensor.name, "the tensor's name"));
  CKPT_CHECK(need(tensor.dtype, "the tensor's dtype"));
  if (tensor.ndim != 0) CKPT_CHECK(need(tensor.shape, "the tensor's shape"));
  const auto dtype = dtype_from_name(tensor.dtype);
  if (!dtype) return fail(Errc::usage, fmt::format("{}: '{}' is no dtype", tensor.name, tensor.dtype));
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
    CKPT_CHECK(need(model, "the place for the model"));
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
    for (uint32_t i = 0; i < step_count; ++i) CKPT_CHECK(ckpt::c::add_step(layout, steps[i], begin));
    if (auto fits = ckpt::universal::check_layout(layout); fits) {
      fits = ckpt::universal::check_layout(layout, declared, begin);
      if (!fits) return ckpt::fail(ckpt::Errc::usage, fits.error().message);
    } else {
      return ckpt::fail(ckpt::Errc::usage, declared.name + ": " + fits.error().message);
    }
    // Layouts are few: one for each way of cutting, whatever the number of tensors.
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
    CKPT_CHECK(need(bytes, "the place for the bytes"));
    for (const ckpt::universal::TensorRow& row : model->rows) {
      if (row.tensor.name != name) continue;
      CKPT_TRY(const auto held, ckpt::universal::held_chunks(model->layouts[row.layout], row.tensor, row.begin, rank));
      *bytes = ckpt::chunk_bytes(held, row.tensor.dtype);
      return {};
    }
    return ckpt::fail(ckpt::Errc::not_found, fmt::format("{}: it is not in the model", name));
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
