// Chunks that hold the same elements, however they are described.
#include "format/model/chunk_form.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "support/random_mesh.hpp"

namespace ckpt {
namespace {

TEST(ChunkForm, EveryPieceOfEveryBoxHasTheFormThatItsElementsAlone) {
  const Shape shape{3, 2, 3};
  std::map<std::vector<std::uint64_t>, Chunk> forms;  // by elements
  for (std::uint64_t box = 0; box < 6 * 3 * 6; ++box) {
    // All ranges of each dimension: begin < end <= size.
    static constexpr std::uint64_t kRanges[][2] = {{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}};
    const auto* a = kRanges[box / 18];
    const auto* b = kRanges[box / 6 % 3];
    const auto* c = kRanges[box % 6];
    const Box outer{{a[0], b[0], c[0]}, {a[1] - a[0], b[1] - b[0], c[1] - c[0]}};
    const std::uint64_t elements = volume(outer.size);
    for (std::uint64_t begin = 0; begin < elements; ++begin) {
      for (std::uint64_t end = begin + 1; end <= elements; ++end) {
        const Chunk chunk{outer, Extent{begin, end}};
        const auto held = test::elements_of(chunk, shape);
        const Chunk tight = tightest(chunk);
        EXPECT_EQ(test::elements_of(tight, shape), held);
        EXPECT_EQ(test::elements_of(as_run(chunk, shape), shape), held);
        EXPECT_EQ(first_element(chunk, shape), held.front());
        EXPECT_EQ(forms.emplace(held, tight).first->second, tight);
      }
    }
  }
}

TEST(ChunkForm, APackedChunkIsInBytesExactlyWhereItsRunsAre) {
  const Tensor f4{.name = "t", .dtype = Dtype::f4, .shape = {8, 6}};
  EXPECT_EQ(byte_shape(f4), (Shape{8, 3}));
  EXPECT_EQ(in_bytes({.box = {{0, 2}, {8, 2}}}, f4), (Chunk{.box = {{0, 1}, {8, 1}}}));
  EXPECT_FALSE(in_bytes({.box = {{0, 1}, {8, 2}}}, f4));
  EXPECT_FALSE(in_bytes({.box = {{0, 0}, {8, 6}}, .flat = Extent{0, 3}}, f4));
  const Tensor odd{.name = "t", .dtype = Dtype::f4, .shape = {4, 2, 3}};  // planes of 3 bytes, rows of one and a half
  EXPECT_EQ(byte_shape(odd), (Shape{4, 3}));
  EXPECT_EQ(in_bytes({.box = {{1, 0, 0}, {2, 2, 3}}}, odd), (Chunk{.box = {{1, 0}, {2, 3}}}));
  EXPECT_FALSE(in_bytes({.box = {{1, 0, 0}, {2, 1, 3}}}, odd));
  const Tensor f6{.name = "t", .dtype = Dtype::f6_e2m3, .shape = {2, 8}};
  EXPECT_EQ(byte_shape(f6), (Shape{2, 6}));
  EXPECT_EQ(in_bytes({.box = {{0, 4}, {2, 4}}}, f6), (Chunk{.box = {{0, 3}, {2, 3}}}));
  EXPECT_FALSE(in_bytes({.box = {{0, 2}, {2, 4}}}, f6));
}

}  // namespace
}  // namespace ckpt
