// Which ranks hold the same, against what the layouts say that each of them holds.
#include "format/universal/replica_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/random_mesh.hpp"

namespace ckpt::test {
namespace {

using universal::TensorRow;

/// A model of several random tensors, each on a mesh of its own.
Model random_model(std::mt19937_64& random) {
  std::vector<universal::Layout> layouts;
  std::vector<TensorRow> rows;
  for (std::uint32_t i = 0; i < 4; ++i) {
    MeshCase drawn = random_mesh_case(random);
    drawn.tensor.name = "t" + std::to_string(i);
    layouts.push_back(std::move(drawn.layout));
    rows.push_back({.tensor = std::move(drawn.tensor), .layout = i, .begin = drawn.begin});
  }
  return Model::make(std::move(layouts), std::move(rows)).value();
}

int writers_of(const Model& model) {
  std::uint64_t most = 0;
  for (const universal::Layout& layout : model.layouts) most = std::max(most, layout.mesh.writer_count().value());
  return static_cast<int>(most);
}

class ReplicaGroupsOfModel : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ReplicaGroupsOfModel, AreTheRanksThatHoldTheSameAndAllOfThemKnowItAlike) {
  std::mt19937_64 random(GetParam());
  for (int n = 0; n < 8; ++n) {
    const Model model = random_model(random);
    // One rank more than any mesh has, or fewer than the largest.
    const int writers = writers_of(model);
    const int ranks = n % 2 == 0 ? writers + 1 : std::max(1, writers - 2);
    std::vector<ReplicaGroups> groups;
    for (int rank = 0; rank < ranks; ++rank) groups.emplace_back(model, rank, ranks);

    std::map<std::uint64_t, std::vector<int>> told;  // by number: who says so
    for (int rank = 0; rank < ranks; ++rank) {
      const ReplicaGroups& mine = groups[static_cast<std::size_t>(rank)];
      EXPECT_EQ(mine.number_end(), groups[0].number_end());
      for (const ReplicaGroups::Group& group : mine.groups()) {
        ASSERT_LT(group.place, group.members.size());
        EXPECT_EQ(group.members[group.place], rank);
        EXPECT_TRUE(std::is_sorted(group.members.begin(), group.members.end()));
        EXPECT_LT(group.number, mine.number_end());
        told[group.number].push_back(rank);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (const ReplicaGroups::Group& group : groups[static_cast<std::size_t>(rank)].groups()) {
        EXPECT_EQ(group.members, told[group.number]) << "every member, and nobody else, knows the group";
      }
    }
    for (std::size_t row = 0; row < model.rows.size(); ++row) {
      if (volume(model.rows[row].tensor.shape) == 0) continue;  // the layouts give it to rank 0, who holds nothing
      std::vector<std::vector<Chunk>> held;
      for (int rank = 0; rank < ranks; ++rank) {
        held.push_back(universal::held_chunks(model.layouts[model.rows[row].layout], model.rows[row].tensor,
                                              model.rows[row].begin, static_cast<std::uint64_t>(rank))
                           .value());
      }
      for (std::size_t a = 0; a < held.size(); ++a) {
        const std::uint32_t group = groups[a].group_of(row);
        const auto members = group == ReplicaGroups::kNoGroup ? std::vector<int>() : groups[a].groups()[group].members;
        for (std::size_t b = 0; b < held.size(); ++b) {
          if (a == b) continue;
          const bool together = std::binary_search(members.begin(), members.end(), static_cast<int>(b));
          const bool same = held[a] == held[b];
          EXPECT_TRUE(same || !together) << a << " and " << b << " of row " << row;
          EXPECT_TRUE(together || !same || held[a].empty()) << a << " and " << b << " of row " << row;
        }
      }
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReplicaGroupsOfModel, testing::Range<std::uint64_t>(1, 9));

TEST(ReplicaGroups, TensorsWithTheSameRanksShareAGroup) {
  using universal::Layout;
  const universal::Mesh mesh{{{"pp", 1}, {"dp", 2}, {"tp", 2}}};
  Layout free{.kind = Layout::Kind::mesh, .mesh = mesh};
  Layout stage = free;
  stage.at = {{.axis = 0, .indices = {0}}};
  Layout cut = stage;
  cut.cuts = {{.dim = 0, .axes = {2}, .rule = Layout::Cut::Rule::even}};
  const auto tensor = [](const char* name) { return Tensor{.name = name, .dtype = Dtype::f32, .shape = {8}}; };
  const Model model = Model::make({free, stage, cut}, {{.tensor = tensor("a"), .layout = 0},
                                                       {.tensor = tensor("b"), .layout = 1},
                                                       {.tensor = tensor("c"), .layout = 2},
                                                       {.tensor = tensor("d"), .layout = 2}})
                          .value();
  const ReplicaGroups groups(model, 3, 4);
  EXPECT_EQ(groups.group_of(0), groups.group_of(1)) << "the only stage is all stages";
  EXPECT_EQ(groups.group_of(2), groups.group_of(3));
  ASSERT_EQ(groups.groups().size(), 2u);
  EXPECT_EQ(groups.groups()[groups.group_of(0)].members, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(groups.groups()[groups.group_of(2)].members, (std::vector<int>{1, 3}));
  EXPECT_EQ(groups.number_end(), 3u);
}

}  // namespace
}  // namespace ckpt::test
