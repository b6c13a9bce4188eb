#include "format/torch/dtensor.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckpt::torch {
namespace {

constexpr auto kShard = Placement::Kind::shard;
constexpr auto kStrided = Placement::Kind::strided_shard;

/// What one place of a mesh holds; the local shape is computed from `lengths`.
Result<std::vector<LocalPiece>> pieces(Shape global, std::vector<Placement> placements, std::vector<std::uint64_t> mesh,
                                       std::vector<std::uint64_t> coordinate, Shape local) {
  DistributedView view;
  view.global_shape = std::move(global);
  view.placements = std::move(placements);
  view.mesh = std::move(mesh);
  view.coordinate = std::move(coordinate);
  view.local.shape = std::move(local);
  view.order.resize(view.global_shape.size());
  for (std::size_t m = 0; m < view.placements.size(); ++m) {
    const Placement& placement = view.placements[m];
    if (placement.kind == kShard || placement.kind == kStrided) view.order[placement.dim].push_back(m);
  }
  return local_pieces(view);
}

std::vector<Box> boxes(const Result<std::vector<LocalPiece>>& pieces) {
  std::vector<Box> out;
  EXPECT_TRUE(pieces.has_value()) << (pieces ? "" : pieces.error().message);
  for (const LocalPiece& piece : pieces ? *pieces : std::vector<LocalPiece>{}) out.push_back(piece.box);
  return out;
}

TEST(DTensorPieces, ShardsFollowTorchChunk) {  // 5 rows over 4: 2, 2, 1, 0
  EXPECT_EQ(boxes(pieces({5, 3}, {{kShard, 0}}, {4}, {1}, {2, 3})), (std::vector<Box>{{{2, 0}, {2, 3}}}));
  EXPECT_EQ(boxes(pieces({5, 3}, {{kShard, 0}}, {4}, {2}, {1, 3})), (std::vector<Box>{{{4, 0}, {1, 3}}}));
  EXPECT_TRUE(boxes(pieces({5, 3}, {{kShard, 0}}, {4}, {3}, {0, 3})).empty());
}

TEST(DTensorPieces, ReplicasAndTwoDimensionsOfAMesh) {
  EXPECT_EQ(boxes(pieces({6, 4}, {{}, {kShard, 0}}, {2, 2}, {1, 1}, {3, 4})), (std::vector<Box>{{{3, 0}, {3, 4}}}));
  EXPECT_EQ(boxes(pieces({5, 7}, {{kShard, 0}, {kShard, 1}}, {2, 2}, {1, 1}, {2, 3})),
            (std::vector<Box>{{{3, 4}, {2, 3}}}));
  EXPECT_EQ(boxes(pieces({8}, {{kShard, 0}, {kShard, 0}}, {2, 2}, {0, 1}, {2})), (std::vector<Box>{{{2}, {2}}}));
}

TEST(DTensorPieces, StridedShardIsCutByTensorParallelismFirst) {  // the example in placement_types.py
  const std::vector<Placement> placements{{kStrided, 0, 2}, {kShard, 0}};
  EXPECT_EQ(boxes(pieces({8}, placements, {2, 2}, {0, 1}, {2})), (std::vector<Box>{{{4}, {2}}}));
  EXPECT_EQ(boxes(pieces({8}, placements, {2, 2}, {1, 0}, {2})), (std::vector<Box>{{{2}, {2}}}));
}

TEST(DTensorPieces, StridedShardAloneIsInSeveralPieces) {  // as in _utils.py: S(0), then SS(0, 2), of [0..7] over 2x2
  const auto held = pieces({8, 2}, {{kShard, 0}, {kStrided, 0, 2}}, {2, 2}, {1, 1}, {2, 2});
  EXPECT_EQ(boxes(held), (std::vector<Box>{{{5, 0}, {1, 2}}, {{7, 0}, {1, 2}}}));
  EXPECT_EQ((*held)[1].local, (Shape{1, 0}));
}

TEST(DTensorPieces, EveryElementIsHeldOnceForEachReplica) {
  for (std::uint64_t rows = 0; rows < 20; ++rows) {
    for (std::uint64_t factor = 1; factor < 5; ++factor) {
      std::vector<int> seen(rows, 0);
      for (std::uint64_t i = 0; i < 12; ++i) {
        const std::vector<std::uint64_t> at{i / 4, i % 4};
        // The local length is not known beforehand: try them all, one fits.
        for (std::uint64_t length = 0; length <= rows; ++length) {
          const auto held = pieces({rows}, {{kStrided, 0, factor}, {kShard, 0}}, {3, 4}, at, {length});
          if (!held) continue;
          for (const LocalPiece& piece : *held) {
            for (std::uint64_t r = 0; r < piece.box.size[0]; ++r) ++seen[piece.box.offset[0] + r];
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(rows, 1)) << rows << " rows, factor " << factor;
    }
  }
}

TEST(DTensorPieces, WhatContradictsItselfIsCorrupt) {
  EXPECT_EQ(pieces({5}, {{kShard, 0}}, {4}, {1}, {1}).error().code, Errc::corrupt);
  EXPECT_EQ(pieces({5}, {{}}, {4}, {1}, {4}).error().code, Errc::corrupt);
  EXPECT_EQ(pieces({5}, {{}}, {4}, {}, {5}).error().code, Errc::corrupt);
  EXPECT_TRUE(boxes(pieces({5}, {{}}, {4}, {}, {0})).empty());  // a rank outside of the mesh holds nothing
}

TEST(DTensorPieces, PartialSumsAndHostileFactorsAreRefused) {
  EXPECT_EQ(pieces({5}, {{Placement::Kind::partial}}, {4}, {1}, {5}).error().code, Errc::unsupported);
  const std::uint64_t huge = std::uint64_t{1} << 40;
  EXPECT_EQ(pieces({huge}, {{kStrided, 0, huge}}, {2}, {0}, {huge}).error().code, Errc::refused);
  const Shape square{40000, 40000};
  EXPECT_EQ(pieces(square, {{kStrided, 0, 20000}, {kStrided, 1, 20000}}, {2, 2}, {0, 0}, {20000, 20000}).error().code,
            Errc::refused);
}

}  // namespace
}  // namespace ckpt::torch
