// What layouts of every kind give their writers, against the same steps taken element by element.
#include <gtest/gtest.h>
// rapidcheck's GoogleTest extra needs the line above.
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "format/model/cut.hpp"
#include "format/universal/mesh_layout.hpp"
#include "format/universal/mesh_search.hpp"
#include "support/random_mesh.hpp"

namespace ckpt::universal {
namespace {

using test::elements_of;
using test::MeshCase;

MeshCase any_case() {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  MeshCase drawn = test::random_mesh_case(random);
  RC_ASSERT(check_layout(drawn.layout));
  RC_ASSERT(check_layout(drawn.layout, drawn.tensor, drawn.begin));
  return drawn;
}

std::uint64_t number_of(const Mesh& mesh, const std::vector<std::uint32_t>& axes,
                        const std::vector<std::uint64_t>& coordinates, std::uint64_t& parts) {
  std::uint64_t part = 0;
  parts = 1;
  for (const std::uint32_t axis : axes) {
    part = part * mesh.axes[axis].size + coordinates[axis];
    parts *= mesh.axes[axis].size;
  }
  return part;
}

/// The elements of a writer's local array in order, by lists of indices: no range is ever computed with.
std::vector<std::uint64_t> local_elements(const MeshCase& c, std::uint64_t writer) {
  const Shape& shape = c.tensor.shape;
  const Mesh& mesh = c.layout.mesh;
  std::vector<std::uint64_t> coordinates(mesh.axes.size());
  for (std::size_t i = mesh.axes.size(); i-- > 0;) {
    coordinates[i] = writer % mesh.axes[i].size;
    writer /= mesh.axes[i].size;
  }
  for (const Layout::At& at : c.layout.at) {
    if (std::count(at.indices.begin(), at.indices.end(), coordinates[at.axis]) == 0) return {};
  }
  std::vector<std::vector<std::uint64_t>> indices(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (std::uint64_t i = 0; i < shape[d]; ++i) indices[d].push_back(i);
  }
  std::uint64_t parts = 1;
  for (const Layout::Cut& cut : c.layout.cuts) {
    const std::uint64_t part = number_of(mesh, cut.axes, coordinates, parts);
    const std::vector<std::uint64_t> all = indices[cut.dim];
    std::vector<std::uint64_t>& kept = indices[cut.dim];
    kept.clear();
    const auto segments = cut.segments.empty() ? std::vector<std::uint64_t>{all.size()} : cut.segments;
    std::uint64_t base = 0;
    for (const std::uint64_t length : segments) {
      Extent held;
      if (cut.rule == Layout::Cut::Rule::points) {
        held = {cut.points[part], cut.points[part + 1]};
      } else if (cut.rule == Layout::Cut::Rule::ceil) {
        held = cut::chunk({length, parts}, part);
      } else {
        held = cut::even({length, parts}, part);
      }
      for (std::uint64_t i = held.begin; i < held.end; ++i) kept.push_back(all[base + i]);
      base += length;
    }
  }
  std::vector<std::uint64_t> elements{0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::uint64_t> next;
    for (const std::uint64_t outer : elements) {
      for (const std::uint64_t index : indices[d]) next.push_back(outer * shape[d] + index);
    }
    elements = std::move(next);
  }
  if (!c.layout.flat) return elements;
  const std::uint64_t part = number_of(mesh, c.layout.flat->axes, coordinates, parts);
  std::vector<std::uint64_t> held;
  for (std::uint64_t i = 0; i < elements.size(); ++i) {
    if ((i + c.begin) / c.layout.flat->part == part) held.push_back(elements[i]);
  }
  return held;
}

std::vector<std::uint64_t> elements_of(const std::vector<Chunk>& chunks, const Shape& shape) {
  std::vector<std::uint64_t> out;
  for (const Chunk& chunk : chunks) {
    const auto elements = elements_of(chunk, shape);
    out.insert(out.end(), elements.begin(), elements.end());
  }
  return out;
}

RC_GTEST_PROP(MeshLayout, WhatAWriterHoldsIsItsLocalArray, ()) {
  const MeshCase c = any_case();
  RC_PRE(volume(c.tensor.shape) != 0);
  const std::uint64_t writers = *c.layout.mesh.writer_count();
  for (std::uint64_t writer = 0; writer < writers; ++writer) {
    const auto held = held_chunks(c.layout, c.tensor, c.begin, writer);
    RC_ASSERT(held);
    auto by_boxes = elements_of(*held, c.tensor.shape);
    auto by_lists = local_elements(c, writer);
    // Ranges of an inner dimension alternate in the local array; their boxes stand one after another.
    const bool alternates = std::any_of(c.layout.cuts.begin(), c.layout.cuts.end(),
                                        [](const Layout::Cut& cut) { return cut.dim != 0 && !cut.segments.empty(); });
    if (alternates) {
      std::sort(by_boxes.begin(), by_boxes.end());
      std::sort(by_lists.begin(), by_lists.end());
    }
    const bool same = by_boxes == by_lists;  // not RC_ASSERT(a == b), which would print all of them
    RC_ASSERT(same);
  }
}

RC_GTEST_PROP(MeshLayout, WritersWriteEveryElementExactlyOnceAndOnlyWhatTheyHold, ()) {
  const MeshCase c = any_case();
  const std::uint64_t writers = *c.layout.mesh.writer_count();
  std::vector<int> written(volume(c.tensor.shape), 0);
  std::size_t chunks = 0;
  for (std::uint64_t writer = 0; writer < writers; ++writer) {
    const auto held = held_chunks(c.layout, c.tensor, c.begin, writer);
    const auto writes = written_chunks(c.layout, c.tensor, c.begin, writer);
    RC_ASSERT(held && writes);
    chunks += writes->size();
    auto mine = elements_of(*held, c.tensor.shape);
    std::sort(mine.begin(), mine.end());
    for (const std::uint64_t element : elements_of(*writes, c.tensor.shape)) {
      ++written[element];
      RC_ASSERT(std::binary_search(mine.begin(), mine.end(), element));
    }
  }
  RC_ASSERT(std::all_of(written.begin(), written.end(), [](int times) { return times == 1; }));
  RC_ASSERT(chunks != 0u);  // an empty tensor has one chunk too
  RC_ASSERT(written_chunks(c.layout, c.tensor, c.begin, writers)->empty());
}

using Written = std::tuple<std::uint64_t, std::uint64_t, Shape, Shape, std::uint64_t, std::uint64_t>;
Written key_of(std::uint64_t writer, std::uint64_t volume, const Chunk& chunk) {
  const Extent flat = chunk.flat.value_or(Extent{});
  return {writer, volume, chunk.box.offset, chunk.box.size, flat.begin, flat.end};
}

RC_GTEST_PROP(MeshSearch, FindsEveryWrittenChunkThatMeetsARangeAndInventsNone, ()) {
  const MeshCase c = any_case();
  const std::uint64_t elements = volume(c.tensor.shape);
  RC_PRE(elements != 0);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const std::uint64_t begin = random() % elements;
  const std::uint64_t end = begin + 1 + random() % (elements - begin);
  std::set<Written> found;
  RC_ASSERT(search_mesh(c.layout, c.tensor, c.begin, {begin, end}, [&](const WrittenChunk& written) -> Result<> {
    RC_ASSERT(found.insert(key_of(written.writer, written.volume, written.chunk)).second);
    return {};
  }));
  const std::uint64_t writers = *c.layout.mesh.writer_count();
  for (std::uint64_t writer = 0; writer < writers; ++writer) {
    const auto writes = written_chunks(c.layout, c.tensor, c.begin, writer);
    for (std::size_t volume = 0; volume < writes->size(); ++volume) {
      const auto inside = elements_of((*writes)[volume], c.tensor.shape);
      const bool meets =
          std::any_of(inside.begin(), inside.end(), [&](std::uint64_t at) { return at >= begin && at < end; });
      const bool was_found = found.erase(key_of(writer, volume, (*writes)[volume])) == 1;
      RC_ASSERT(was_found || !meets);
    }
  }
  RC_ASSERT(found.empty());
}

}  // namespace
}  // namespace ckpt::universal
