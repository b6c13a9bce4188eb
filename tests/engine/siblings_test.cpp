// Target files that take other columns of the same rows: their source is read once.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/run.hpp"
#include "support/memory_io.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

constexpr std::size_t kFiles = 4;
constexpr std::uint64_t kUnit = 2;  // bytes of an element

/// A tensor of which target files have equal parts along one dimension.
struct Divided {
  Shape shape{};
  std::size_t along = 0;
};

class Siblings : public testing::Test {
 protected:
  /// pieces  of the source along the last dimension, in a file each
  void make(std::vector<Divided> tensors, std::uint64_t pieces = 1) {
    tensors_ = std::move(tensors);
    map_ = {};
    values_.clear();
    ChunkTable table(tensors_.size());
    std::vector<std::string> files(pieces, std::string(100, 'h'));
    std::mt19937 random(7);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const Shape& shape = tensors_[t].shape;
      map_.tensors.push_back({.name = "t" + std::to_string(t), .dtype = Dtype::bf16, .shape = shape});
      std::string bytes(volume(shape) * kUnit, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      for (std::uint64_t p = 0; p < pieces; ++p) {
        Box box = Box::whole(shape);
        box.size.back() /= pieces;
        box.offset.back() = p * box.size.back();
        table.add(t, shape, {.box = box},
                  {.file = static_cast<std::uint32_t>(p), .offset = files[p].size(), .dtype = Dtype::bf16});
        files[p] += part_of(bytes, shape, box);
      }
      values_.push_back(std::move(bytes));
    }
    table.seal();
    map_.index = std::make_shared<ChunkTable>(std::move(table));
    source_bytes_ = 0;
    for (std::uint64_t p = 0; p < pieces; ++p) {
      const std::string name = "s" + std::to_string(p);
      map_.files.push_back({.path = name, .bytes = files[p].size()});
      source_bytes_ += files[p].size();
      disk_.put("/source/" + name, std::move(files[p]));
    }
  }

  /// A part of a tensor, row by row.
  static std::string part_of(const std::string& bytes, const Shape& shape, const Box& box) {
    std::string out;
    Shape point = box.offset;
    const std::uint64_t run = box.size.back() * kUnit;
    for (std::uint64_t n = 0; n < volume(box.size) / box.size.back(); ++n) {
      out += bytes.substr(linear_index(Box::whole(shape), point) * kUnit, run);
      for (std::size_t d = point.size() - 1; d-- > 0;) {
        if (++point[d] < box.offset[d] + box.size[d]) break;
        point[d] = box.offset[d];
      }
    }
    return out;
  }

  Box part(std::size_t tensor, std::size_t file) const {
    Box box = Box::whole(tensors_[tensor].shape);
    const std::size_t along = tensors_[tensor].along;
    box.size[along] /= kFiles * taken_;
    box.offset[along] = file * box.size[along];
    return box;
  }

  std::vector<TargetFile> targets() const {
    std::vector<TargetFile> out;
    for (std::size_t f = 0; f < kFiles; ++f) {
      TargetFile file{.path = "f" + std::to_string(f)};
      file.placements.push_back(
          {.offset = 0, .bytes = 1000, .from = Placement::From::literal, .literal = std::string(1000, 'a' + char(f))});
      file.bytes = 1000;
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Box box = part(t, f);
        file.placements.push_back({.offset = file.bytes,
                                   .bytes = volume(box.size) * kUnit,
                                   .tensor = static_cast<std::uint32_t>(t),
                                   .chunk = Chunk{.box = box},
                                   .dtype = Dtype::bf16});
        file.bytes += volume(box.size) * kUnit;
      }
      out.push_back(std::move(file));
    }
    return out;
  }

  std::string expected(std::size_t file) const {
    std::string out(1000, static_cast<char>('a' + static_cast<char>(file)));
    for (std::size_t t = 0; t < tensors_.size(); ++t) out += part_of(values_[t], tensors_[t].shape, part(t, file));
    return out;
  }

  /// The bytes that were read, after a look at those that were written.
  std::uint64_t carry_out(int ranks, unsigned workers, std::uint64_t buffers) {
    std::uint64_t read = 0;
    std::mutex mutex;
    for (std::size_t f = 0; f < kFiles; ++f) disk_.put("/target/f" + std::to_string(f), "");
    ThreadRanks(ranks).run([&](Comm& comm) {
      const auto plan = Plan::make(map_, targets());
      ASSERT_TRUE(plan) << plan.error().message;
      const auto io = disk_.io();
      RunOptions options{.source_root = "/source", .target_root = "/target", .workers = workers};
      options.pool_bytes = smallest_pool_bytes(workers) / 2 * buffers;
      const auto report = run(*plan, *io, comm, options);
      EXPECT_TRUE(report) << (report ? "" : report.error().message);
      const std::lock_guard lock(mutex);
      read += report ? report->read_bytes : 0;
    });
    for (std::size_t f = 0; f < kFiles; ++f)
      EXPECT_TRUE(disk_.text("/target/f" + std::to_string(f)) == expected(f)) << f;
    return read;
  }

  std::size_t siblings() const { return Plan::make(map_, targets())->siblings(); }

  std::vector<Divided> tensors_{};
  std::vector<std::string> values_{};
  Map map_{};
  std::uint64_t source_bytes_ = 0;
  std::uint64_t taken_ = 1;  // the files have all of it together, or so small a part
  MemoryDisk disk_{};
};

TEST_F(Siblings, ColumnsOfTheSameRowsAreReadOnce) {
  make(
      {{.shape = {3001, 4000}, .along = 1}, {.shape = {8000, 100}, .along = 0}, {.shape = {3, 500, 2000}, .along = 2}});
  EXPECT_EQ(siblings(), kFiles);
  const std::uint64_t few = source_bytes_ + source_bytes_ / 10;
  EXPECT_LT(carry_out(1, 1, 20), few);
  EXPECT_LT(carry_out(1, 1, 8), few);
  EXPECT_LT(carry_out(1, 2, 12), few);
}

TEST_F(Siblings, TheFilesAreTheSameWhateverRanksWorkersAndBuffersThereAre) {
  make({{.shape = {2001, 1000}, .along = 1}, {.shape = {4, 60, 40, 52}, .along = 2}, {.shape = {9, 4}, .along = 1}});
  for (const int ranks : {1, 3})
    for (const unsigned workers : {1u, 2u})
      for (const std::uint64_t buffers : {2u, 3u, 5u, 24u}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << workers << " workers, " << buffers << " buffers");
        carry_out(ranks, workers, buffers);
      }
}

TEST_F(Siblings, RowsThatNoBufferHoldsAreReadInParts) {
  make({{.shape = {3, 2'400'000}, .along = 1}});
  EXPECT_EQ(siblings(), kFiles);
  EXPECT_LT(carry_out(1, 1, 12), source_bytes_ + source_bytes_ / 10);
}

TEST_F(Siblings, FewOfManyColumnsAreReadByThemselves) {
  make({{.shape = {100, 160'000}, .along = 1}});
  taken_ = 40;
  EXPECT_EQ(siblings(), kFiles);
  EXPECT_LT(carry_out(1, 1, 12), source_bytes_ / 5);
}

TEST_F(Siblings, EveryLeafComesOnceBesideItsSiblings) {
  make({{.shape = {6000, 2000}, .along = 1}});
  const auto plan = Plan::make(map_, targets());
  ASSERT_TRUE(plan);
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < plan->positions(); ++i) order.push_back(plan->leaf_at(i));
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST_F(Siblings, FilesThatNeedOtherRowsOrNarrowOnesAreNone) {
  make({{.shape = {4000, 1000}, .along = 0}});
  EXPECT_EQ(siblings(), 1U);
  make({{.shape = {1000, 4000}, .along = 1}}, kFiles);  // the source is cut as they are
  EXPECT_EQ(siblings(), 1U);
  make({{.shape = {1000, 4000}, .along = 1}}, 2);  // it has halves, they have quarters
  EXPECT_EQ(siblings(), kFiles);
  EXPECT_LT(carry_out(1, 1, 12), source_bytes_ + source_bytes_ / 10);
}

}  // namespace
}  // namespace ckpt::test
