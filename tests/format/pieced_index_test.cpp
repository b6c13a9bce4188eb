#include "format/model/pieced_index.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "format/model/chunk_form.hpp"

namespace ckpt {
namespace {

/// Which element of the source each element of a tensor is, by the offsets of its chunks: sources are U8 tensors, and
/// file t holds tensor t. -1: none holds it; -2: two hold it.
std::vector<std::int64_t> origins(const ChunkIndex& index, std::size_t tensor, const Shape& shape, Extent elements) {
  std::vector<std::int64_t> out(volume(shape), -1);
  const Box whole = Box::whole(shape);
  const auto visit = [&](const PlacedChunk& placed) -> Result<> {
    std::vector<Box> boxes{placed.chunk.box};
    if (placed.chunk.flat) {
      boxes.clear();
      split_flat(placed.chunk.box, *placed.chunk.flat, boxes);
    }
    const auto strides = placed.where.strides.empty() ? row_major_strides(placed.chunk.box.size) : placed.where.strides;
    for (const Box& box : boxes) {
      for (std::uint64_t i = 0; i < volume(box.size); ++i) {
        Shape point = box.offset;
        std::uint64_t rest = i;
        for (std::size_t d = point.size(); d-- > 0; rest /= box.size[d]) point[d] += rest % box.size[d];
        std::uint64_t at = placed.where.offset - (placed.chunk.flat ? placed.chunk.flat->begin : 0);
        for (std::size_t d = 0; d < point.size(); ++d)
          at += (point[d] - placed.chunk.box.offset[d]) * static_cast<std::uint64_t>(strides[d]);
        std::int64_t& held = out[linear_index(whole, point)];
        const auto origin = static_cast<std::int64_t>(placed.where.file * 1000 + at);
        held = held == -1 || held == origin ? origin : -2;
      }
    }
    return {};
  };
  EXPECT_TRUE(index.chunks(tensor, elements, visit));
  return out;
}

/// Tensors 0 and 1 of [4, 6]: one in two column blocks and runs, the other whole.
std::shared_ptr<ChunkTable> source() {
  auto out = std::make_shared<ChunkTable>(2);
  const Shape shape{4, 6};
  out->add(0, shape, {.box = {{0, 0}, {4, 2}}}, {.file = 0, .offset = 0, .dtype = Dtype::u8, .strides = {6, 1}});
  out->add(0, shape, {.box = {{0, 2}, {4, 4}}, .flat = Extent{0, 7}}, {.file = 0, .offset = 100, .dtype = Dtype::u8});
  out->add(0, shape, {.box = {{0, 2}, {4, 4}}, .flat = Extent{7, 16}}, {.file = 0, .offset = 207, .dtype = Dtype::u8});
  out->add(1, shape, {.box = Box::whole(shape)}, {.file = 1, .dtype = Dtype::u8});
  out->seal();
  return out;
}

/// The place of an element of tensor 0 or 1.
std::int64_t place(std::uint64_t tensor, std::uint64_t row, std::uint64_t column) {
  if (tensor == 1) return static_cast<std::int64_t>(1000 + row * 6 + column);
  if (column < 2) return static_cast<std::int64_t>(row * 6 + column);
  const std::uint64_t at = row * 4 + column - 2;
  return static_cast<std::int64_t>(at < 7 ? 100 + at : 200 + at);
}

TEST(PiecedIndex, StackedTensorsAreThoseOfTheSource) {
  PiecedIndex index(source(), {{4, 6}, {4, 6}});
  std::vector<TensorPiece> pieces;
  for (const std::uint32_t t : {1U, 0U})
    pieces.push_back({.source = t, .from = Box::whole({4, 6}), .to = {{t, 0, 0}, {1, 4, 6}}, .axes = {-1, 0, 1}});
  index.add({2, 4, 6}, pieces);
  const auto got = origins(index, 0, {2, 4, 6}, {0, 48});
  for (std::uint64_t i = 0; i < 48; ++i) EXPECT_EQ(got[i], place(i / 24, i % 24 / 6, i % 6)) << i;
}

TEST(PiecedIndex, RowsAreCutTransposedAndRepeated) {
  PiecedIndex index(source(), {{4, 6}, {4, 6}});
  // [6, 5]: the rows 1 to 3 of tensor 0 as columns 0 to 2, then the last row of tensor 1, twice.
  index.add({6, 5}, {{.source = 0, .from = {{1, 0}, {3, 6}}, .to = {{0, 0}, {6, 3}}, .axes = {1, 0}},
                     {.source = 1, .from = {{3, 0}, {1, 6}}, .to = {{0, 3}, {6, 2}}, .axes = {1, -1}}});
  const auto got = origins(index, 0, {6, 5}, {0, 30});
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::uint64_t row = i / 5;
    const std::uint64_t column = i % 5;
    EXPECT_EQ(got[i], column < 3 ? place(0, column + 1, row) : place(1, 3, row)) << i;
  }
}

TEST(PiecedIndex, ARangeIsAnsweredWithAllItsElementsAndFewOthers) {
  PiecedIndex index(source(), {{4, 6}, {4, 6}});
  index.add({8, 6}, {{.source = 1, .from = {{0, 0}, {4, 6}}, .to = {{4, 0}, {4, 6}}, .axes = {0, 1}},
                     {.source = 0, .from = {{0, 0}, {4, 6}}, .to = {{0, 0}, {4, 6}}, .axes = {0, 1}}});
  const auto all = origins(index, 0, {8, 6}, {0, 48});
  for (std::uint64_t begin = 0; begin < 48; ++begin) {
    for (std::uint64_t end = begin + 1; end <= 48; ++end) {
      const auto got = origins(index, 0, {8, 6}, {begin, end});
      for (std::uint64_t i = 0; i < 48; ++i) {
        const bool is_near = i / 6 + 1 > begin / 6 && i / 6 <= (end - 1) / 6;
        if (i >= begin && i < end) {
          EXPECT_EQ(got[i], all[i]);
        } else {
          EXPECT_TRUE(got[i] == -1 || (is_near && got[i] == all[i])) << begin << " " << end << " " << i;
        }
      }
    }
  }
}

TEST(PiecedIndex, RegionsAreThoseOfTheChunks) {
  PiecedIndex index(source(), {{4, 6}, {4, 6}});
  index.add(1);
  index.add({6, 4}, {{.source = 0, .from = Box::whole({4, 6}), .to = Box::whole({6, 4}), .axes = {1, 0}}});
  std::uint64_t elements = 0;
  const auto count = [&](const Chunk& chunk) -> Result<> {
    elements += chunk.volume();
    return {};
  };
  EXPECT_TRUE(index.regions(0, {0, 24}, count));
  EXPECT_EQ(elements, 24U);
  EXPECT_TRUE(index.regions(1, {0, 24}, count));
  EXPECT_EQ(elements, 48U);
}

}  // namespace
}  // namespace ckpt
