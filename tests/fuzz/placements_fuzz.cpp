#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "format/universal/placements.hpp"

namespace {
using namespace ckpt::universal;
using ckpt::Result;

void require(bool holds) {
  if (!holds) std::abort();
}

/// Numbers from the input: mostly small, sometimes any.
class Numbers {
 public:
  Numbers(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool done() const { return at_ >= size_; }
  std::uint64_t next() {
    if (done()) return 0;
    const std::uint8_t byte = data_[at_++];
    if (byte < 0xf0) return byte;
    std::uint64_t out = 0;
    for (unsigned i = 0; i < 8 && !done(); ++i) out = out << 8 | data_[at_++];
    return out;
  }
  std::uint32_t axis() { return static_cast<std::uint32_t>(next() % 5); }
  std::vector<std::uint64_t> list() {
    std::vector<std::uint64_t> out(next() % 5);
    for (std::uint64_t& value : out) value = next();
    return out;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

Result<Layout> step(const Layout& layout, Numbers& in) {
  const std::uint64_t which = in.next() % 10;
  const std::uint32_t axis = in.axis();
  const auto dim = static_cast<std::uint32_t>(in.next());
  switch (which) {
    case 0:
      return placement::fsdp_shard(layout, dim, {axis});
    case 1:
      return placement::even_shard(layout, dim, {axis, in.axis()});
    case 2:
      return placement::tensor_parallel(layout, {.axis = axis, .dim = dim, .length = in.next()});
    case 3:
      return placement::vocabulary(layout, {.axis = axis, .rows = in.next(), .divisible_by = in.next()});
    case 4:
      return placement::grouped_qkv(layout,
                                    {.axis = axis, .heads = in.next(), .groups = in.next(), .head_rows = in.next()});
    case 5:
      return placement::stacked(layout, {.axis = axis, .dim = dim, .lengths = in.list()});
    case 6:
      return placement::at_stages(layout, axis, in.list());
    case 7:
      return placement::at_expert(layout, {.axis = axis, .count = in.next()}, in.next());
    case 8:
      return placement::flat_parts(layout, {axis}, in.next());
    default:
      return placement::zero3(layout, {axis}, in.next());
  }
}
}  // namespace

// Steps with any numbers, one after another: what is accepted is a layout that the manifest can hold.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Numbers in(data, size);
  Mesh mesh;
  for (const char* name : {"pp", "tp", "dp"}) mesh.axes.push_back({name, in.next() % 8 + 1});
  Layout layout = placement::replicated(mesh);
  for (int i = 0; i < 8 && !in.done(); ++i) {
    auto next = step(layout, in);
    if (!next) continue;
    layout = *std::move(next);
    require(check_layout(layout).has_value());
    const ckpt::Tensor tensor{.name = "w", .shape = {12, 10}};
    if (!check_layout(layout, tensor, 0)) continue;
    const auto chunks = held_chunks(layout, tensor, 0, in.next() % 8);
    if (!chunks) continue;
    for (const auto& chunk : *chunks) require(ckpt::fits(chunk.box, tensor.shape));
  }
  const std::vector<std::uint64_t> counts = in.list();
  const auto group = placement::flat_group({.element_counts = counts, .ranks = in.next(), .align_factor = in.next()});
  if (group) require(group->begins.size() == counts.size());
  const placement::Pipeline pipeline{.layers = in.next(), .stages = in.next(), .virtual_stages = in.next()};
  if (const auto stage = placement::stage_of_layer(pipeline, in.next())) require(*stage < pipeline.stages);
  return 0;
}
