// Tensors that the source holds transposed: its rows are read once, although every leaf needs a part of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/run.hpp"
#include "engine/run/siblings.hpp"
#include "format/model/pieced_index.hpp"
#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

constexpr std::uint64_t kUnit = 4;  // bytes of an element

/// Experts of matrices: the target has [experts, columns, rows], the source [experts, rows, columns].
struct Matrices {
  std::uint64_t experts = 1;
  std::uint64_t columns = 0;
  std::uint64_t rows = 0;
};

class Transposed : public testing::Test {
 protected:
  /// How the source tells where an element is.
  enum class Told {
    by_strides,  // chunks of the tensor itself, with strides
    by_pieces,   // pieces of another tensor, which are cut to what is asked for
  };

  void make(std::vector<Matrices> tensors, Told told) {
    tensors_ = std::move(tensors);
    map_ = {};
    expected_ = std::string(1000, 'l');
    std::string source(103, 'h');  // no element is aligned
    std::mt19937 random(7);
    ChunkTable table(tensors_.size());
    std::vector<Shape> shapes;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const auto& [experts, columns, rows] = tensors_[t];
      const Shape shape{experts, columns, rows};
      const Shape stored{experts, rows, columns};
      map_.tensors.push_back({.name = "t" + std::to_string(t), .dtype = Dtype::f32, .shape = shape});
      std::string bytes(volume(shape) * kUnit, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      const Locator where{.file = 0, .offset = source.size(), .dtype = Dtype::f32};
      if (told == Told::by_strides) {
        Locator strided = where;
        strided.strides = {static_cast<std::int64_t>(rows * columns), 1, static_cast<std::int64_t>(columns)};
        table.add(t, shape, {.box = Box::whole(shape)}, strided);
      } else {
        table.add(t, stored, {.box = Box::whole(stored)}, where);
      }
      shapes.push_back(stored);
      for (std::uint64_t e = 0; e < experts; ++e)
        for (std::uint64_t c = 0; c < columns; ++c)
          for (std::uint64_t r = 0; r < rows; ++r)
            expected_.append(bytes, ((e * rows + r) * columns + c) * kUnit, kUnit);
      source += bytes;
    }
    table.seal();
    map_.index = std::make_shared<ChunkTable>(std::move(table));
    if (told == Told::by_pieces) {
      auto pieced = std::make_shared<PiecedIndex>(map_.index, shapes);
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const auto source_tensor = static_cast<std::uint32_t>(t);
        pieced->add(map_.tensors[t].shape, {{.source = source_tensor,
                                             .from = Box::whole(shapes[t]),
                                             .to = Box::whole(map_.tensors[t].shape),
                                             .axes = {0, 2, 1}}});
      }
      map_.index = pieced;
    }
    source_bytes_ = source.size();
    map_.files = {{.path = "s", .bytes = source.size()}};
    disk_.put("/source/s", std::move(source));
  }

  std::vector<TargetFile> targets() const {
    TargetFile file{.path = "f"};
    file.placements.push_back(
        {.offset = 0, .bytes = 1000, .from = Placement::From::literal, .literal = std::string(1000, 'l')});
    file.bytes = 1000;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const std::uint64_t bytes = volume(map_.tensors[t].shape) * kUnit;
      file.placements.push_back(
          {.offset = file.bytes, .bytes = bytes, .tensor = static_cast<std::uint32_t>(t), .dtype = Dtype::f32});
      file.bytes += bytes;
    }
    return {file};
  }

  /// The bytes that were read, after a look at those that were written.
  std::uint64_t carry_out(int ranks, unsigned workers, std::uint64_t buffers, const std::vector<bool>& finished = {}) {
    std::uint64_t read = 0;
    std::mutex mutex;
    if (finished.empty()) disk_.put("/target/f", "");
    ThreadRanks(ranks).run([&](Comm& comm) {
      auto plan = Plan::make(map_, targets());
      ASSERT_TRUE(plan) << plan.error().message;
      if (!finished.empty()) plan->skip_leaves(finished);
      const auto io = disk_.io();
      RunOptions options{.source_root = "/source", .target_root = "/target", .workers = workers};
      options.pool_bytes = smallest_pool_bytes(workers) / 2 * buffers;
      const auto report = run(*plan, *io, comm, options);
      EXPECT_TRUE(report) << (report ? "" : report.error().message);
      const std::lock_guard lock(mutex);
      read += report ? report->read_bytes : 0;
    });
    EXPECT_TRUE(disk_.text("/target/f") == expected_);
    return read;
  }

  std::size_t siblings() const { return Plan::make(map_, targets())->siblings(); }

  std::vector<Matrices> tensors_{};
  std::string expected_{};
  Map map_{};
  std::uint64_t source_bytes_ = 0;
  MemoryDisk disk_{};
};

TEST_F(Transposed, ItsRowsAreReadOnce) {
  for (const Told told : {Told::by_strides, Told::by_pieces}) {
    SCOPED_TRACE(told == Told::by_pieces ? "pieces" : "strides");
    make({{.columns = 6000, .rows = 1000}, {.columns = 100, .rows = 100}, {.columns = 901, .rows = 3001}}, told);
    EXPECT_EQ(siblings(), 9u);  // of both, which share a leaf
    const std::uint64_t few = source_bytes_ + source_bytes_ / 10;
    EXPECT_LT(carry_out(1, 1, 20), few);
    EXPECT_LT(carry_out(1, 2, 24), few);
    EXPECT_LT(carry_out(1, 1, 10), few);
  }
}

TEST_F(Transposed, LargeOnesAreReadInGroups) {
  make({{.columns = 9000, .rows = 2000}}, Told::by_pieces);  // 18 leaves
  EXPECT_EQ(siblings(), 9u);
  EXPECT_LT(carry_out(1, 1, 20), 2 * source_bytes_ + source_bytes_ / 5);
}

TEST_F(Transposed, TheFileIsTheSameWhateverRanksWorkersAndBuffersThereAre) {
  for (const Told told : {Told::by_strides, Told::by_pieces}) {
    make({{.columns = 1000, .rows = 3333},
          {.experts = 3, .columns = 700, .rows = 1111},
          {.columns = 5, .rows = 900'000},
          {.columns = 900'000, .rows = 5}},
         told);
    for (const int ranks : {1, 3})
      for (const unsigned workers : {1u, 2u})
        for (const std::uint64_t buffers : {2u, 3u, 5u, 24u}) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, " << workers << " workers, " << buffers << " buffers");
          carry_out(ranks, workers, buffers);
        }
  }
}

TEST_F(Transposed, LeavesThatExistAreNotReadAgain) {
  make({{.columns = 6000, .rows = 1000}}, Told::by_pieces);
  carry_out(1, 1, 20);
  for (std::size_t leaf = 0; leaf < 6; ++leaf) {
    std::vector<bool> finished(6, true);
    finished[leaf] = finished[(leaf + 2) % 6] = false;
    carry_out(1, 2, 20, finished);
  }
}

TEST_F(Transposed, FewOfManyColumnsAreReadByThemselves) {
  make({{.columns = 100, .rows = 3000}}, Told::by_strides);
  EXPECT_EQ(siblings(), 1u);  // one leaf
  make({{.columns = 5, .rows = 2'000'000}}, Told::by_strides);
  EXPECT_EQ(siblings(), 1u);  // a column is longer than a leaf
}

TEST_F(Transposed, StridesThatAreNoRowsAreNone) {
  EXPECT_EQ(transposed_dimension({4, 5}, std::vector<std::int64_t>{1, 4}), 0u);
  EXPECT_EQ(transposed_dimension({2, 4, 5}, std::vector<std::int64_t>{20, 1, 4}), 1u);
  EXPECT_EQ(transposed_dimension({4, 5}, std::vector<std::int64_t>{1, 9}), 0u);  // rows with a gap
  EXPECT_FALSE(transposed_dimension({4, 5}, std::vector<std::int64_t>{}));       // dense
  EXPECT_FALSE(transposed_dimension({4, 5}, std::vector<std::int64_t>{5, 1}));   // as in the tensor
  EXPECT_FALSE(transposed_dimension({4, 1}, std::vector<std::int64_t>{1, 4}));   // a column
  EXPECT_FALSE(transposed_dimension({4, 5}, std::vector<std::int64_t>{2, 8}));   // elements between
  EXPECT_FALSE(transposed_dimension({4, 5}, std::vector<std::int64_t>{1, 2}));   // overlapping
  EXPECT_FALSE(transposed_dimension({4, 5}, std::vector<std::int64_t>{0, 1}));   // repeated
}

}  // namespace
}  // namespace ckpt::test
