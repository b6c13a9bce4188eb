#include "format/universal/mesh_layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "format/hash.hpp"
#include "format/universal/mesh_search.hpp"

namespace ckpt::universal {
namespace {

using Rule = Layout::Cut::Rule;

Layout mesh(std::vector<Axis> axes) {
  return {.kind = Layout::Kind::mesh, .mesh = {std::move(axes)}};
}

Tensor tensor(Dtype dtype, Shape shape) {
  return {.name = "w", .dtype = dtype, .shape = std::move(shape)};
}

std::vector<Chunk> held(const Layout& layout, const Tensor& tensor, std::uint64_t writer) {
  return held_chunks(layout, tensor, 0, writer).value();
}
std::vector<Chunk> written(const Layout& layout, const Tensor& tensor, std::uint64_t writer) {
  return written_chunks(layout, tensor, 0, writer).value();
}

TEST(MeshLayout, WritersAreNumberedRowMajorTheFirstAxisOutermost) {
  const Mesh grid{{{"pp", 2}, {"dp", 3}, {"tp", 4}}};
  EXPECT_EQ(grid.writer_count().value(), 24u);
  EXPECT_EQ(grid.coordinates(17), (std::vector<std::uint64_t>{1, 1, 1}));
  for (std::uint64_t writer = 0; writer < 24; ++writer) EXPECT_EQ(grid.writer(grid.coordinates(writer)), writer);
  EXPECT_EQ(Mesh{}.writer_count().value(), 1u);
}

TEST(MeshLayout, PartsOverSeveralAxesAreNumberedInTheOrderOfTheCut) {
  Layout layout = mesh({{"a", 2}, {"b", 3}});
  layout.cuts = {{.dim = 0, .axes = {1, 0}}};
  // Writer (a 1, b 0) is number 3 and holds part 0 * 2 + 1.
  EXPECT_EQ(held(layout, tensor(Dtype::u8, {6}), 3), (std::vector<Chunk>{{.box = {{1}, {1}}}}));
}

TEST(MeshLayout, SegmentsThatTouchAreOneBox) {
  Layout layout = mesh({{"tp", 1}});
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::even, .segments = {4, 2, 2}}};
  EXPECT_EQ(held(layout, tensor(Dtype::u8, {8, 3}), 0), (std::vector<Chunk>{{.box = {{0, 0}, {8, 3}}}}));
}

TEST(MeshLayout, AFlatPieceThatIsItsWholeBoxIsThatBox) {
  Layout layout = mesh({{"dp", 2}});
  layout.flat = Layout::Flat{.axes = {0}, .part = 6};
  EXPECT_EQ(held(layout, tensor(Dtype::u8, {2, 3}), 0), (std::vector<Chunk>{{.box = {{0, 0}, {2, 3}}}}));
  EXPECT_TRUE(held(layout, tensor(Dtype::u8, {2, 3}), 1).empty());
}

TEST(MeshLayout, ASmallChunkIsWrittenByTheReplicaThatItsNameChooses) {
  const Layout layout = mesh({{"dp", 5}});
  for (std::uint64_t writer = 0; writer < 5; ++writer) {
    EXPECT_EQ(written(layout, tensor(Dtype::f32, {262'143}), writer).size(), writer == hash64("w") % 5 ? 1u : 0u)
        << "4 bytes short of 1 MiB";
  }
  // Of no bytes, with seed 0, as the specification of xxHash gives it.
  EXPECT_EQ(hash64(""), 0xef46db3751d8e999ull);
}

TEST(MeshLayout, ALargeChunkIsWrittenByAllReplicasRowByRow) {
  const Layout layout = mesh({{"dp", 3}});
  const Tensor whole = tensor(Dtype::f32, {1, 4, 65'536});
  EXPECT_EQ(written(layout, whole, 0), (std::vector<Chunk>{{.box = {{0, 0, 0}, {1, 2, 65'536}}}}));
  EXPECT_EQ(written(layout, whole, 2), (std::vector<Chunk>{{.box = {{0, 3, 0}, {1, 1, 65'536}}}}));
  const Layout wide = mesh({{"dp", 8}});
  EXPECT_TRUE(written(wide, whole, 4).empty()) << "four rows for eight replicas";
}

TEST(MeshLayout, ReplicasShareALargeFlatPieceByElements) {
  Layout layout = mesh({{"replicate", 2}, {"shard", 2}});
  layout.flat = Layout::Flat{.axes = {1}, .part = 300'000};
  const Tensor whole = tensor(Dtype::f32, {600, 1000});
  const Box all = Box::whole({600, 1000});
  EXPECT_EQ(written(layout, whole, 1), (std::vector<Chunk>{{.box = all, .flat = Extent{300'000, 450'000}}}));
  EXPECT_EQ(written(layout, whole, 3), (std::vector<Chunk>{{.box = all, .flat = Extent{450'000, 600'000}}}));
}

TEST(MeshLayout, HoldersOfTiedWeightsAreReplicas) {
  Layout layout = mesh({{"pp", 4}});
  layout.at = {{.axis = 0, .indices = {0, 3}}};
  const Tensor large = tensor(Dtype::u8, {1 << 20});
  EXPECT_EQ(written(layout, large, 0)[0].box.size[0], 1u << 19);
  EXPECT_TRUE(written(layout, large, 1).empty());
  EXPECT_EQ(written(layout, large, 3)[0].box.offset[0], 1u << 19);
}

TEST(MeshLayout, ATensorWithoutElementsHasOneChunkAtWriterZero) {
  Layout layout = mesh({{"dp", 3}});
  layout.at = {{.axis = 0, .indices = {2}}};
  const Tensor empty = tensor(Dtype::f32, {4, 0});
  EXPECT_EQ(written(layout, empty, 0), (std::vector<Chunk>{{.box = {{0, 0}, {4, 0}}}}));
  EXPECT_TRUE(written(layout, empty, 2).empty());
}

TEST(MeshLayout, ElementsThatShareAByteStayTogether) {
  Layout layout = mesh({{"tp", 2}});
  layout.cuts = {{.dim = 1, .axes = {0}}};
  EXPECT_EQ(held(layout, tensor(Dtype::f4, {3, 4}), 1), (std::vector<Chunk>{{.box = {{0, 2}, {3, 2}}}}));
  EXPECT_EQ(held_chunks(layout, tensor(Dtype::f4, {4, 6}), 0, 0).error().code, Errc::corrupt);
  EXPECT_EQ(held_chunks(layout, tensor(Dtype::f6_e2m3, {4, 12}), 0, 0).error().code, Errc::corrupt);
  EXPECT_TRUE(held_chunks(layout, tensor(Dtype::f6_e2m3, {4, 16}), 0, 0));
  layout.cuts[0].dim = 0;
  EXPECT_TRUE(held_chunks(layout, tensor(Dtype::f4, {4, 3}), 0, 0)) << "two rows of three are three bytes";
  EXPECT_EQ(held_chunks(layout, tensor(Dtype::f4, {2, 3}), 0, 0).error().code, Errc::corrupt);
  layout.cuts.clear();
  layout.flat = Layout::Flat{.axes = {0}, .part = 7};
  EXPECT_EQ(held_chunks(layout, tensor(Dtype::f4, {2, 6}), 0, 0).error().code, Errc::corrupt);
}

TEST(MeshSearch, RefusesWhatWouldPartElementsThatShareAByte) {
  // Rows of an odd number of half bytes: replicas could not divide them, and the last row would be nobody's.
  Layout layout = mesh({{"tp", 2}, {"dp", 4}});
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = {0, 3, 4}}};
  const Tensor odd = tensor(Dtype::f4, {4, (1 << 20) + 1});
  ASSERT_TRUE(check_layout(layout, odd, 0));
  const std::uint64_t third_row = 2 * ((1 << 20) + 1);
  const auto searched =
      search_mesh(layout, odd, 0, {third_row, third_row + 1}, [](const WrittenChunk&) -> Result<> { return {}; });
  ASSERT_FALSE(searched);
  EXPECT_EQ(searched.error().code, Errc::corrupt);
}

TEST(MeshLayout, ReplicasDivideRowsOfPackedTypesAtWholeBytes) {
  const Layout layout = mesh({{"dp", 3}});
  const Tensor odd = tensor(Dtype::f4, {6, 1'000'001});  // rows of half a byte more
  for (std::uint64_t writer = 0; writer < 3; ++writer) {
    EXPECT_EQ(written(layout, odd, writer)[0].box.offset[0], writer * 2);
    EXPECT_EQ(written(layout, odd, writer)[0].box.size[0], 2u);
  }
}

TEST(MeshLayout, WhatALayoutSaysByItselfIsChecked) {
  using Change = std::function<void(Layout&)>;
  const std::vector<std::pair<const char*, Change>> changes{
      {"size 0", [](Layout& l) { l.mesh.axes[0].size = 0; }},
      {"more than 1048576 writers", [](Layout& l) { l.mesh.axes[0].size = std::uint64_t{1} << 60; }},
      {"more than 1048576 writers", [](Layout& l) { l.mesh.axes[0].size = (1 << 20) / 2 + 1; }},
      {"more than 16", [](Layout& l) { l.mesh.axes.resize(17); }},
      {"without a name", [](Layout& l) { l.mesh.axes[0].name.clear(); }},
      {"two are named", [](Layout& l) { l.mesh.axes[0].name = "b"; }},
      {"no index", [](Layout& l) { l.at = {{.axis = 0}}; }},
      {"do not ascend",
       [](Layout& l) {
         l.at = {{.axis = 0, .indices = {1, 1}}};
       }},
      {"which has 2", [](Layout& l) { l.at = {{.axis = 0, .indices = {2}}}; }},
      {"axis 7 does not exist", [](Layout& l) { l.at = {{.axis = 7, .indices = {0}}}; }},
      {"used twice", [](Layout& l) { l.at = {{.axis = 1, .indices = {0}}}; }},
      {"used twice",
       [](Layout& l) {
         l.cuts[0].axes = {1, 1};
       }},
      {"used twice", [](Layout& l) { l.flat = Layout::Flat{.axes = {1}, .part = 1}; }},
      {"no axes", [](Layout& l) { l.cuts[0].axes.clear(); }},
      {"axis 9 does not exist", [](Layout& l) { l.cuts[0].axes = {9}; }},
      {"points without their rule",
       [](Layout& l) {
         l.cuts[0].points = {0, 1, 2};
       }},
      {"or the rule without them", [](Layout& l) { l.cuts[0].rule = Rule::points; }},
      {"1 points for 2 parts",
       [](Layout& l) { l.cuts[0] = {.dim = 0, .axes = {1}, .rule = Rule::points, .points = {0}}; }},
      {"do not ascend from 0",
       [](Layout& l) {
         l.cuts[0] = {.dim = 0, .axes = {1}, .rule = Rule::points, .points = {0, 3, 2}};
       }},
      {"do not ascend from 0",
       [](Layout& l) {
         l.cuts[0] = {.dim = 0, .axes = {1}, .rule = Rule::points, .points = {1, 2, 3}};
       }},
      {"points and segments",
       [](Layout& l) {
         l.cuts[0] = {.dim = 0, .axes = {1}, .rule = Rule::points, .points = {0, 1, 2}, .segments = {2}};
       }},
      {"more than 1024 segments", [](Layout& l) { l.cuts[0].segments.assign(1025, 1); }},
      {"in a further cut", [](Layout& l) { l.cuts.push_back({.dim = 0, .axes = {0}, .segments = {4}}); }},
      {"overflows",
       [](Layout& l) {
         l.cuts[0].segments = {~std::uint64_t{0}, 2};
       }},
      {"parts of no elements", [](Layout& l) { l.flat = Layout::Flat{.axes = {0}}; }},
      {"overflows", [](Layout& l) { l.flat = Layout::Flat{.axes = {0}, .part = std::uint64_t{1} << 63}; }},
      {"only those of dimension 0",
       [](Layout& l) {
         l.cuts[0] = {.dim = 1, .axes = {1}, .segments = {4}};
         l.flat = Layout::Flat{.axes = {0}, .part = 1};
       }},
      {"more than 16", [](Layout& l) { l.cuts.resize(17, l.cuts[0]); }},
      {"not a mesh", [](Layout& l) { l.kind = Layout::Kind::whole; }},
      {"not a mesh", [](Layout& l) { l.kind = Layout::Kind::irregular; }},
  };
  Layout good = mesh({{"a", 2}, {"b", 2}});
  good.cuts = {{.dim = 0, .axes = {1}}};
  ASSERT_TRUE(check_layout(good));
  for (const auto& [reason, change] : changes) {
    Layout bad = good;
    change(bad);
    const auto checked = check_layout(bad);
    ASSERT_FALSE(checked) << reason;
    EXPECT_EQ(checked.error().code, Errc::corrupt);
    EXPECT_NE(checked.error().message.find(reason), std::string::npos) << checked.error().message;
  }
}

TEST(MeshLayout, ALayoutThatDoesNotFitItsTensorNamesIt) {
  Layout layout = mesh({{"a", 2}});
  const auto reason = [&](const Tensor& of, std::uint64_t begin) {
    const auto checked = check_layout(layout, of, begin);
    EXPECT_FALSE(checked);
    if (checked) return std::string();
    EXPECT_EQ(checked.error().tensor, "w");
    return checked.error().message;
  };
  EXPECT_NE(reason(tensor(Dtype::u8, {4}), 1).find("begin: 1 in a layout without flat"), std::string::npos);
  layout.cuts = {{.dim = 1, .axes = {0}}};
  EXPECT_NE(reason(tensor(Dtype::u8, {4}), 0).find("dimension 1 of a tensor that has 1"), std::string::npos);
  layout.cuts = {{.dim = 0, .axes = {0}, .segments = {3, 2}}};
  EXPECT_NE(reason(tensor(Dtype::u8, {4}), 0).find("segments end at 5, the dimension at 4"), std::string::npos);
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = {0, 1, 3}}};
  EXPECT_NE(reason(tensor(Dtype::u8, {4}), 0).find("points end at 3, the dimension at 4"), std::string::npos);
  // A tensor without elements is held to the same rules.
  EXPECT_NE(reason(tensor(Dtype::u8, {4, 0}), 0).find("points end at 3, the dimension at 4"), std::string::npos);
  layout.cuts = {{.dim = 0, .axes = {0}, .segments = {3, 2}}};
  EXPECT_NE(reason(tensor(Dtype::u8, {4, 0}), 0).find("segments end at 5, the dimension at 4"), std::string::npos);
  EXPECT_TRUE(check_layout(layout, tensor(Dtype::u8, {5, 0}), 0));
  layout.cuts.clear();
  layout.flat = Layout::Flat{.axes = {0}, .part = 3};
  EXPECT_TRUE(check_layout(layout, tensor(Dtype::u8, {2, 2}), 2));
  EXPECT_NE(reason(tensor(Dtype::u8, {2, 2}), 3).find("end before the tensor does"), std::string::npos);
  EXPECT_NE(reason(tensor(Dtype::u8, {2, 2}), ~std::uint64_t{0}).find("overflows"), std::string::npos);
}

TEST(MeshLayout, FlatPartsMustReachTheEndOfTheLongestPartBetweenPoints) {
  Layout layout = mesh({{"tp", 2}, {"dp", 2}});
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = {0, 10, 64}}};
  layout.flat = Layout::Flat{.axes = {1}, .part = 27};
  EXPECT_TRUE(check_layout(layout, tensor(Dtype::u8, {64}), 0));
  EXPECT_FALSE(check_layout(layout, tensor(Dtype::u8, {64}), 1));
  layout.flat->part = 26;  // enough for the first part, not for the second
  const auto short_of = check_layout(layout, tensor(Dtype::u8, {64}), 0);
  ASSERT_FALSE(short_of);
  EXPECT_NE(short_of.error().message.find("end before the tensor does"), std::string::npos);
  // Parts of one element would be counted one by one: there must be no search for them.
  layout = mesh({{"tp", 1}, {"dp", 1}});
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = {0, std::uint64_t{1} << 50}}};
  layout.flat = Layout::Flat{.axes = {1}, .part = 1};
  EXPECT_FALSE(check_layout(layout, tensor(Dtype::u8, {std::uint64_t{1} << 50}), 0));
  // As many points as a layout can have are looked at once, not for each of a manifest's tensors.
  layout = mesh({{"tp", kMaxWriters / 2}, {"dp", 2}});
  std::vector<std::uint64_t> points(kMaxWriters / 2 + 1, 0);
  points.back() = 8;
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = points}};
  layout.flat = Layout::Flat{.axes = {1}, .part = 4};
  ASSERT_TRUE(check_layout(layout));
  const LayoutFit fit(layout);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(fit.check(tensor(Dtype::u8, {8}), 0));
}

TEST(MeshLayout, TooManyBoxesAreRefusedNotMade) {
  Layout layout = mesh({{"a", 2}, {"b", 2}});
  layout.cuts = {{.dim = 0, .axes = {0}, .segments = std::vector<std::uint64_t>(1024, 2)},
                 {.dim = 1, .axes = {1}, .segments = std::vector<std::uint64_t>(2, 2)}};
  const Tensor grid = tensor(Dtype::u8, {2048, 4});
  ASSERT_TRUE(check_layout(layout));
  ASSERT_TRUE(check_layout(layout, grid, 0));
  EXPECT_EQ(held_chunks(layout, grid, 0, 0).error().code, Errc::corrupt);
  EXPECT_FALSE(search_mesh(layout, grid, 0, {0, 10}, [](WrittenChunk) -> Result<> { return {}; }));
}

TEST(MeshSearch, CostsWhatIsMetNotWhatThereIs) {
  Layout layout = mesh({{"dp", kMaxWriters}});
  layout.cuts = {{.dim = 0, .axes = {0}}};
  const Tensor tall = tensor(Dtype::u8, {std::uint64_t{1} << 40, 1 << 10});
  for (int i = 0; i < 10'000; ++i) {  // a walk over a million writers each time would take minutes
    std::uint32_t writers = 0;
    ASSERT_TRUE(search_mesh(layout, tall, 0, {std::uint64_t{1} << 45, (std::uint64_t{1} << 45) + 4096},
                            [&](const WrittenChunk& chunk) -> Result<> {
                              ++writers;
                              EXPECT_EQ(chunk.writer, 1u << 15);
                              return {};
                            }));
    ASSERT_EQ(writers, 1u);
  }
}

TEST(MeshSearch, PartsThatHoldNothingCostNothing) {
  // One element at each end, nothing at the million ranks between; below each of them another axis.
  Layout layout = mesh({{"a", kMaxWriters / 2}, {"b", 2}});
  std::vector<std::uint64_t> points(kMaxWriters / 2 + 1, 1);
  points.front() = 0;
  points.back() = 2;
  layout.cuts = {{.dim = 0, .axes = {0}, .rule = Rule::points, .points = points}, {.dim = 1, .axes = {1}}};
  const Tensor two = tensor(Dtype::u8, {2, 2});
  ASSERT_TRUE(check_layout(layout, two, 0));
  for (int i = 0; i < 10'000; ++i) {
    std::uint32_t writers = 0;
    ASSERT_TRUE(search_mesh(layout, two, 0, {0, 4}, [&](const WrittenChunk&) -> Result<> {
      ++writers;
      return {};
    }));
    ASSERT_EQ(writers, 4u);
  }
}

}  // namespace
}  // namespace ckpt::universal
