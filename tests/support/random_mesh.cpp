#include "support/random_mesh.hpp"

#include <algorithm>
#include <string>

namespace ckpt::test {
namespace {

using universal::Layout;

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  MeshCase run() {
    Tensor drawn;
    tensor(drawn);
    universal::Mesh mesh;
    const std::uint64_t axes = below(5);
    for (std::uint64_t i = 0; i < axes; ++i)
      mesh.axes.push_back({.name = "axis" + std::to_string(i), .size = 1 + below(4)});
    return run(drawn, mesh);
  }

  MeshCase run(const Tensor& tensor, const universal::Mesh& mesh) {
    MeshCase out{.layout = {.kind = Layout::Kind::mesh, .mesh = mesh}, .tensor = tensor};
    Layout& layout = out.layout;
    std::vector<std::uint32_t> free(mesh.axes.size());
    for (std::uint32_t i = 0; i < free.size(); ++i) free[i] = i;
    std::shuffle(free.begin(), free.end(), random_);
    std::vector<bool> was_cut(out.tensor.shape.size());
    bool may_be_flat = true;
    while (!free.empty() && !one_in(4)) {
      const std::uint64_t what = below(6);
      if (what == 0) {
        layout.at.push_back(at(take_one(free), layout.mesh));
      } else if (what < 5 && !was_cut.empty()) {
        layout.cuts.push_back(cut(take(free), out.tensor.shape, layout.mesh, was_cut));
        may_be_flat = may_be_flat && (layout.cuts.back().segments.empty() || layout.cuts.back().dim == 0);
      } else if (may_be_flat && !layout.flat) {
        layout.flat = Layout::Flat{.axes = take(free), .part = 1};
        break;  // cuts come before it
      }
    }
    if (layout.flat) divide(out);
    return out;
  }

 private:
  void tensor(Tensor& tensor) {
    static constexpr Dtype kDtypes[] = {Dtype::u8, Dtype::bf16, Dtype::f32, Dtype::f64};
    tensor.name = "tensor" + std::to_string(below(1000));
    tensor.dtype = kDtypes[below(4)];
    const std::uint64_t rank = below(4);
    for (std::uint64_t d = 0; d < rank; ++d) tensor.shape.push_back(one_in(20) ? 0 : 1 + below(9));
    if (one_in(10) && !tensor.shape.empty()) {  // long enough that replicas share it
      tensor.dtype = Dtype::f64;
      tensor.shape.resize(std::min<std::size_t>(tensor.shape.size(), 2));
      tensor.shape[below(tensor.shape.size())] = (std::uint64_t{1} << 17) + below(40'000);
    }
  }

  std::uint32_t take_one(std::vector<std::uint32_t>& free) {
    const std::uint32_t axis = free.back();
    free.pop_back();
    return axis;
  }
  std::vector<std::uint32_t> take(std::vector<std::uint32_t>& free) {
    std::vector<std::uint32_t> axes{take_one(free)};
    if (!free.empty() && one_in(3)) axes.push_back(take_one(free));
    return axes;
  }

  Layout::At at(std::uint32_t axis, const universal::Mesh& mesh) {
    Layout::At at{.axis = axis};
    for (std::uint64_t i = 0; i < mesh.axes[axis].size; ++i) {
      if (one_in(2)) at.indices.push_back(i);
    }
    if (at.indices.empty()) at.indices.push_back(below(mesh.axes[axis].size));
    return at;
  }

  /// Ascending numbers from 0 to `length`, both included: `count` steps.
  std::vector<std::uint64_t> steps(std::uint64_t length, std::uint64_t count) {
    std::vector<std::uint64_t> out{0, length};
    for (std::uint64_t i = 1; i < count; ++i) out.push_back(below(length + 1));
    std::sort(out.begin(), out.end());
    return out;
  }

  Layout::Cut cut(std::vector<std::uint32_t> axes, const Shape& shape, const universal::Mesh& mesh,
                  std::vector<bool>& was_cut) {
    Layout::Cut cut{.dim = static_cast<std::uint32_t>(below(shape.size())), .axes = std::move(axes)};
    const bool first = !was_cut[cut.dim];
    was_cut[cut.dim] = true;
    cut.rule = one_in(2) ? Layout::Cut::Rule::ceil : Layout::Cut::Rule::even;
    if (first && one_in(3)) {
      std::uint64_t parts = 1;
      for (const std::uint32_t axis : cut.axes) parts *= mesh.axes[axis].size;
      cut.rule = Layout::Cut::Rule::points;
      cut.points = steps(shape[cut.dim], parts);
    } else if (first && one_in(2)) {
      const auto ends = steps(shape[cut.dim], 1 + below(3));
      for (std::size_t i = 1; i < ends.size(); ++i) cut.segments.push_back(ends[i] - ends[i - 1]);
    }
    return cut;
  }

  void divide(MeshCase& out) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : out.tensor.shape) elements *= size;
    std::uint64_t parts = 1;
    for (const std::uint32_t axis : out.layout.flat->axes) parts *= out.layout.mesh.axes[axis].size;
    out.begin = one_in(2) ? 0 : below(elements + 2);
    out.layout.flat->part = (out.begin + elements) / parts + 1 + below(3);
  }

  std::mt19937_64& random_;
};

}  // namespace

MeshCase random_mesh_case(std::mt19937_64& random) {
  return Draw(random).run();
}

MeshCase random_layout_of(std::mt19937_64& random, const Tensor& tensor, const universal::Mesh& mesh) {
  return Draw(random).run(tensor, mesh);
}

std::vector<std::uint64_t> elements_of(const Chunk& chunk, const Shape& shape) {
  std::vector<std::uint64_t> out;
  std::vector<std::uint64_t> at(shape.size(), 0);
  const std::uint64_t count = volume(chunk.box.size);
  for (std::uint64_t n = 0; n < count; ++n) {
    std::uint64_t index = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + chunk.box.offset[d] + at[d];
    if (!chunk.flat || (n >= chunk.flat->begin && n < chunk.flat->end)) out.push_back(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < chunk.box.size[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace ckpt::test
