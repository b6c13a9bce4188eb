#pragma once

// The tensors of a model and how they are divided among ranks, for C++20: a header over the C interface. ckpt/ckpt.h
// documents each function.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/ckpt.h"
#include "ckpt/result.hpp"

namespace ckpt {
inline namespace v1 {

/// One step of a layout: how a tensor is divided among ranks. Axes are names of mesh axes; several as "dp,ep",
/// outermost first. CKPT_CHUNK and the following in ckpt.h define each kind.
class Step {
 public:
  /// Dimension `dim` in parts of ceil(length / parts): torch.chunk, DTensor Shard, FSDP2.
  static Step chunk(std::uint32_t dim, std::string axes) { return {CKPT_CHUNK, dim, std::move(axes), {}}; }
  /// Dimension `dim` in parts whose lengths differ by at most one.
  static Step even(std::uint32_t dim, std::string axes) { return {CKPT_EVEN, dim, std::move(axes), {}}; }
  /// Part k of dimension `dim` is [points[k], points[k + 1]).
  static Step points(std::uint32_t dim, std::string axis, std::vector<std::uint64_t> points) {
    return {CKPT_POINTS, dim, std::move(axis), std::move(points)};
  }
  /// Dimension `dim` is segments of these lengths, each divided evenly.
  static Step segments(std::uint32_t dim, std::string axes, std::vector<std::uint64_t> lengths) {
    return {CKPT_SEGMENTS, dim, std::move(axes), std::move(lengths)};
  }
  /// Only the ranks with one of these coordinates on the axis hold the tensor.
  static Step at(std::string axis, std::vector<std::uint64_t> coordinates) {
    return {CKPT_AT, 0, std::move(axis), std::move(coordinates)};
  }
  /// A range of the flattened tensor, in parts of `part_elements`, as ZeRO divides it. See Model::flat_group.
  static Step flat(std::string axes, std::uint64_t part_elements, std::uint64_t begin) {
    return {CKPT_FLAT, 0, std::move(axes), {part_elements, begin}};
  }
  ckpt_step c() const {
    return {kind_, dim_, axes_.c_str(), numbers_.data(), static_cast<std::uint32_t>(numbers_.size())};
  }

 private:
  friend class Model;
  Step(std::int32_t kind, std::uint32_t dim, std::string axes, std::vector<std::uint64_t> numbers)
      : kind_(kind), dim_(dim), axes_(std::move(axes)), numbers_(std::move(numbers)) {}
  std::int32_t kind_;
  std::uint32_t dim_;
  std::string axes_;
  std::vector<std::uint64_t> numbers_;
};

/// Declares a tensor, whole, not the part of a rank.
struct Tensor {
  std::string name;
  std::string dtype = "F32";           ///< as in safetensors: "F32", "BF16", ...
  std::vector<std::uint64_t> shape{};  ///< in elements
  std::string role = "param";          ///< "param", "buffer", "slot" (optimizer state)
  std::string parameter{};             ///< of a slot: the name of its parameter
  std::string slot{};                  ///< of a slot: "master", "exp_avg", ...

  ckpt_tensor c() const {
    return {sizeof(ckpt_tensor),
            name.c_str(),
            dtype.c_str(),
            shape.data(),
            static_cast<std::uint32_t>(shape.size()),
            role.c_str(),
            parameter.empty() ? nullptr : parameter.c_str(),
            slot.empty() ? nullptr : slot.c_str()};
  }
};

/// All tensors and how they are divided among the ranks. Every rank declares the same.
class Model {
 public:
  struct Axis {
    std::string name;        ///< "dp", "tp", "pp", "ep", ...
    std::uint64_t size = 1;  ///< ranks along it
  };
  /// A model on a mesh. Ranks are numbered row-major over the axes, the first outermost.
  static Result<Model> on(const std::vector<Axis>& axes) {
    std::vector<ckpt_axis> c;
    for (const Axis& axis : axes) c.push_back({axis.name.c_str(), axis.size});
    ckpt_model* model = nullptr;
    if (const int code = ckpt_model_new(c.data(), static_cast<std::uint32_t>(c.size()), &model)) {
      return detail::failure(code);
    }
    return Model(model);
  }
  /// Declares a tensor. Without steps it is replicated on all ranks.
  Result<> tensor(const Tensor& tensor, const std::vector<Step>& steps) {
    std::vector<ckpt_step> c;
    for (const Step& step : steps) c.push_back(step.c());
    const ckpt_tensor declared = tensor.c();
    return detail::check(ckpt_model_tensor(model_.get(), &declared, c.data(), static_cast<std::uint32_t>(c.size())));
  }
  /// Bytes of the part that a rank holds.
  Result<std::uint64_t> part_bytes(const std::string& name, std::uint64_t rank) const {
    std::uint64_t bytes = 0;
    if (const int code = ckpt_model_part_bytes(model_.get(), name.c_str(), rank, &bytes)) return detail::failure(code);
    return bytes;
  }
  const ckpt_model* c() const { return model_.get(); }

  // Placements: steps by the rules of common trainers; see CKPT_COLUMN and the following in ckpt.h. Combine them in the
  // order ranks, cuts, flat range: {Model::stage("pp", {0}), Model::column("tp"), Model::partition("dp")}.

  /// Replicated on all ranks: no steps.
  static std::vector<Step> replicated() { return {}; }
  /// Column-parallel: a weight [out, in], divided along `out`; also its bias [out].
  static Step column(std::string axis) { return {CKPT_COLUMN, 0, std::move(axis), {}}; }
  /// Row-parallel: a weight [out, in], divided along `in`; its bias is replicated.
  static Step row(std::string axis) { return {CKPT_ROW, 0, std::move(axis), {}}; }
  /// An embedding [vocabulary, hidden], declared without the rows that pad it to a multiple of divisible_by * ranks.
  static Step vocabulary(std::string axis, std::uint64_t divisible_by = 128) {
    return {CKPT_VOCABULARY, 0, std::move(axis), {divisible_by}};
  }
  /// Fused QKV, divided by whole groups of query heads with their key and value head. groups = heads without GQA.
  static Step qkv(std::string axis, std::uint64_t heads, std::uint64_t groups, std::uint64_t head_rows) {
    return {CKPT_QKV, 0, std::move(axis), {heads, groups, head_rows}};
  }
  /// [gate; up] stacked along `dim`: an equal part of each half.
  static Step glu(std::string axis, std::uint32_t dim = 0) { return {CKPT_GLU, dim, std::move(axis), {}}; }
  /// A tensor of expert number `expert` of `experts`, on the rank that holds this expert.
  static Step expert(std::string axis, std::uint64_t experts, std::uint64_t expert) {
    return {CKPT_EXPERT, 0, std::move(axis), {experts, expert}};
  }
  /// All experts stacked along dimension 0, divided equally.
  static Step stacked_experts(std::string axis) { return {CKPT_COLUMN, 0, std::move(axis), {}}; }
  /// Only on these pipeline stages; with several stages, as replicas (tied embeddings).
  static Step stage(std::string axis, std::vector<std::uint64_t> stages) {
    return Step::at(std::move(axis), std::move(stages));
  }
  /// On the pipeline stage of layer number `layer`; each stage has `virtual_stages` blocks of consecutive layers.
  static Step layer(std::string axis, std::uint64_t layers, std::uint64_t layer, std::uint64_t virtual_stages = 1) {
    return {CKPT_LAYER, 0, std::move(axis), {layers, layer, virtual_stages}};
  }
  /// ZeRO-3: the elements of each parameter in equal parts.
  static Step partition(std::string axes) { return {CKPT_PARTITION, 0, std::move(axes), {}}; }
  /// Flat ranges of ZeRO stages 1 and 2: one Step for each parameter of a parameter group. See ckpt_flat_group.
  ///
  /// ranks           the product of the sizes of `axes`
  /// element_counts  elements of each parameter, in the order of the group
  static Result<std::vector<Step>> flat_group(const std::string& axes, std::uint64_t ranks,
                                              std::span<const std::uint64_t> element_counts,
                                              std::uint64_t align_factor = 2) {
    std::uint64_t part = 0;
    std::vector<std::uint64_t> begins(element_counts.size());
    if (const int code =
            ckpt_flat_group(element_counts.data(), element_counts.size(), ranks, align_factor, &part, begins.data())) {
      return detail::failure(code);
    }
    std::vector<Step> steps;
    for (const std::uint64_t begin : begins) steps.push_back(Step::flat(axes, part, begin));
    return steps;
  }

 private:
  explicit Model(ckpt_model* model) : model_(model) {}
  std::unique_ptr<ckpt_model, detail::Release<ckpt_model_free>> model_;
};

}  // namespace v1
}  // namespace ckpt
