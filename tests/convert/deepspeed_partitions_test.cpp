#include "convert/deepspeed/writer/partitions.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <numeric>
#include <vector>

namespace ckpt::deepspeed {
namespace {

/// The elements of a rank's flat tensor, as numbers of the whole group; -1 is padding.
std::vector<std::int64_t> spelled_out(const FlatTensor& flat, const std::vector<std::uint64_t>& members) {
  std::vector<std::int64_t> out(flat.elements, -1);
  for (const FlatPiece& piece : flat.pieces) {
    std::uint64_t begin = 0;
    for (std::size_t m = 0; m < piece.member; ++m) begin += members[m];
    for (std::uint64_t i = 0; i < piece.elements.size(); ++i) {
      RC_ASSERT(out.at(piece.offset + i) == -1);
      out[piece.offset + i] = static_cast<std::int64_t>(begin + piece.elements.begin + i);
    }
  }
  return out;
}

std::vector<std::uint64_t> some_members() {
  return *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 40)));
}

RC_GTEST_PROP(DeepSpeedPartitions, FlatGroupsAreTheParametersEndToEndInEqualParts, ()) {
  const auto members = some_members();
  const auto dp = *rc::gen::inRange<std::uint64_t>(1, 12);
  const std::uint64_t total = std::accumulate(members.begin(), members.end(), std::uint64_t{0});
  const std::uint64_t aligned = (total + 2 * dp - 1) / (2 * dp) * (2 * dp);
  std::vector<std::int64_t> all;
  for (std::uint64_t rank = 0; rank < dp; ++rank) {
    const auto flat = flat_partition(members, dp, rank);
    RC_ASSERT(flat.has_value());
    RC_ASSERT(flat->elements == aligned / dp);
    const auto mine = spelled_out(*flat, members);
    RC_ASSERT(static_cast<std::uint64_t>(std::count(mine.begin(), mine.end(), -1)) == flat->padding);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  for (std::uint64_t i = 0; i < aligned; ++i) RC_ASSERT(all[i] == (i < total ? static_cast<std::int64_t>(i) : -1));
}

RC_GTEST_PROP(DeepSpeedPartitions, EveryParameterOfStageThreeIsCutByItself, ()) {
  const auto members = some_members();
  const auto dp = *rc::gen::inRange<std::uint64_t>(1, 12);
  for (std::uint64_t rank = 0; rank < dp; ++rank) {
    const auto flat = parameter_partitions(members, dp, rank);
    RC_ASSERT(flat.has_value());
    const auto mine = spelled_out(*flat, members);
    std::vector<std::int64_t> expected;
    std::uint64_t begin = 0;
    for (const std::uint64_t elements : members) {
      const std::uint64_t part = (elements + dp - 1) / dp;
      for (std::uint64_t i = rank * part; i < (rank + 1) * part; ++i)
        expected.push_back(i < elements ? static_cast<std::int64_t>(begin + i) : -1);
      begin += elements;
    }
    RC_ASSERT(mine == expected);
  }
}

TEST(DeepSpeedPartitions, SizesThatPass64BitsAreRefused) {
  const std::vector<std::uint64_t> members{std::uint64_t{1} << 63, std::uint64_t{1} << 63};
  EXPECT_FALSE(flat_partition(members, 2, 0).has_value());
  EXPECT_FALSE(parameter_partitions(std::vector<std::uint64_t>(3, std::uint64_t{1} << 63), 1, 0).has_value());
}

}  // namespace
}  // namespace ckpt::deepspeed
