#include "format/model/match_parameters.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <set>

namespace ckpt {
namespace {

UnnamedGroup members(std::vector<std::optional<Shape>> shapes) {
  return {.shapes = std::move(shapes)};
}
UnnamedGroup flat(std::uint64_t elements) {
  return {.flat_elements = elements};
}

std::optional<Assignment> match(const std::vector<Shape>& candidates, const std::vector<UnnamedGroup>& groups,
                                const Agrees& agrees = {}) {
  auto found = match_parameters(candidates, groups, agrees);
  EXPECT_TRUE(found.has_value());
  return found ? *found : std::nullopt;
}

/// Evidence for members whose masters are those of `truth`.
Agrees from(const Assignment& truth) {
  return [&truth](std::size_t candidate, std::size_t group, std::uint64_t position) -> Result<bool> {
    return position < truth[group].size() && truth[group][static_cast<std::size_t>(position)] == candidate;
  };
}

TEST(MatchParameters, OneGroupOfAllWeightsFollowsTheModule) {
  EXPECT_EQ(match({{4, 4}, {4}, {4, 4}}, {members({Shape{4, 4}, Shape{4}, Shape{4, 4}})}), (Assignment{{0, 1, 2}}));
}

TEST(MatchParameters, UnknownShapesFollowTheOrder) {
  EXPECT_EQ(match({{4, 4}, {4}}, {members({std::nullopt, std::nullopt})}), (Assignment{{0, 1}}));
}

TEST(MatchParameters, TwoGroupsAreToldApartByShape) {
  // Weight decay for matrices, none for vectors.
  EXPECT_EQ(match({{4, 4}, {4}, {8, 4}, {8}}, {members({Shape{4, 4}, Shape{8, 4}}), members({Shape{4}, Shape{8}})}),
            (Assignment{{0, 2}, {1, 3}}));
}

TEST(MatchParameters, TwoGroupsOfOneShapeAreNotGuessed) {
  const std::vector<Shape> candidates{{4}, {4}};
  const std::vector<UnnamedGroup> groups{members({Shape{4}}), members({Shape{4}})};
  EXPECT_EQ(match(candidates, groups), std::nullopt);
  EXPECT_EQ(match(candidates, groups, from({{1}, {0}})), (Assignment{{1}, {0}}));
}

TEST(MatchParameters, AFrozenWeightIsLeftOutWhereItsShapeTells) {
  EXPECT_EQ(match({{4, 4}, {7}, {4}}, {members({Shape{4, 4}, Shape{4}})}), (Assignment{{0, 2}}));
}

TEST(MatchParameters, AFrozenWeightOfTheSameShapeIsNotGuessed) {
  const std::vector<Shape> candidates{{4}, {4}, {9}};
  const std::vector<UnnamedGroup> groups{members({Shape{4}, Shape{9}})};
  EXPECT_EQ(match(candidates, groups), std::nullopt);
  EXPECT_EQ(match(candidates, groups, from({{1, 2}})), (Assignment{{1, 2}}));
}

TEST(MatchParameters, EvidenceThatFitsTwoWeightsDecidesNothing) {
  const Agrees any = [](std::size_t, std::size_t, std::uint64_t) -> Result<bool> { return true; };
  EXPECT_EQ(match({{4}, {4}}, {members({Shape{4}})}, any), std::nullopt);
}

TEST(MatchParameters, EvidenceAgainstTheOrderOfTheModuleDecidesAlone) {
  const std::vector<Shape> candidates{{4}, {9}, {4}, {4}};
  const std::vector<UnnamedGroup> sorted{members({Shape{4}, Shape{4}, Shape{4}, Shape{9}})};
  EXPECT_EQ(match(candidates, sorted, from({{3, 0, 2, 1}})), (Assignment{{3, 0, 2, 1}}));
  EXPECT_EQ(match({{4}, {4}}, {members({Shape{4}, Shape{4}})}, from({{1, 0}})), (Assignment{{1, 0}}));
  // The first member is known to be out of place, but not whose the others are.
  const Agrees part = [](std::size_t candidate, std::size_t, std::uint64_t position) -> Result<bool> {
    return position == 0 ? candidate == 2 : candidate != 2;
  };
  EXPECT_EQ(match({{4}, {4}, {4}}, {members({Shape{4}, Shape{4}, Shape{4}})}, part), std::nullopt);
}

TEST(MatchParameters, WeightsThatWereChangedAfterTheirMastersKeepTheOrder) {
  const Agrees first = [](std::size_t candidate, std::size_t, std::uint64_t position) -> Result<bool> {
    return candidate == 0 && position == 0;
  };
  EXPECT_EQ(match({{4}, {4}}, {members({Shape{4}, Shape{4}})}, first), (Assignment{{0, 1}}));
}

TEST(MatchParameters, FlatGroupsInAnotherOrderThanTheModuleAreNotMatched) {
  const Agrees reversed = [](std::size_t candidate, std::size_t, std::uint64_t position) -> Result<bool> {
    return candidate == (position == 0 ? 1 : 0);
  };
  EXPECT_EQ(match({{4}, {4}}, {flat(8)}, reversed), std::nullopt);
}

TEST(MatchParameters, AFlatGroupOfAllWeightsFollowsTheModule) {
  EXPECT_EQ(match({{4, 4}, {4}}, {flat(20)}), (Assignment{{0, 1}}));
}

TEST(MatchParameters, FlatGroupsAreToldApartByWhatStillFitsElseByEvidence) {
  EXPECT_EQ(match({{6}, {4}, {2}}, {flat(8), flat(4)}), (Assignment{{0, 2}, {1}}));
  const std::vector<Shape> candidates{{4}, {4}, {4}};
  const std::vector<UnnamedGroup> groups{flat(8), flat(4)};
  EXPECT_EQ(match(candidates, groups), std::nullopt);
  const Agrees agrees = [](std::size_t candidate, std::size_t group, std::uint64_t position) -> Result<bool> {
    return (candidate == 0 && group == 0 && position == 0) || (candidate == 1 && group == 1 && position == 0) ||
           (candidate == 2 && group == 0 && position == 4);
  };
  EXPECT_EQ(match(candidates, groups, agrees), (Assignment{{0, 2}, {1}}));
}

TEST(MatchParameters, MembersThatNoWeightFitsAreNotMatched) {
  EXPECT_EQ(match({{4}}, {members({Shape{5}})}), std::nullopt);
  EXPECT_EQ(match({{4}}, {members({Shape{4}, Shape{4}})}), std::nullopt);
  EXPECT_EQ(match({}, {members({Shape{4}})}), std::nullopt);
}

TEST(MatchParameters, AnErrorOfTheEvidenceIsPassedOn) {
  const Agrees broken = [](std::size_t, std::size_t, std::uint64_t) -> Result<bool> { return fail(Errc::io, "read"); };
  const auto found = match_parameters({{4}, {4}}, {members({Shape{4}})}, broken);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, Errc::io);
}

TEST(MatchParameters, TheShapeOfAParameterIsWhatItsStateBroadcastsTo) {
  using State = std::vector<std::pair<std::string_view, Shape>>;
  EXPECT_EQ(shape_of_state(State{{"step", {}}, {"exp_avg", {3, 4}}}), (Shape{3, 4}));
  EXPECT_EQ(shape_of_state(State{{"row_var", {3, 1}}, {"col_var", {1, 4}}}), (Shape{3, 4}));
  EXPECT_EQ(shape_of_state(State{{"exp_avg_sq_row", {4}}, {"exp_avg_sq_col", {4}}}), (Shape{4, 4}));
  EXPECT_EQ(shape_of_state(State{{"exp_avg_sq_row", {3}}, {"exp_avg_sq_col", {4}}, {"exp_avg", {3, 4}}}),
            (Shape{3, 4}));
  EXPECT_EQ(shape_of_state(State{{"eta", {}}, {"mu", {}}, {"ax", {5}}}), (Shape{5}));
  EXPECT_EQ(shape_of_state(State{{"a", {3}}, {"b", {4}}}), std::nullopt);
  EXPECT_EQ(shape_of_state(State{{"step", {}}}), std::nullopt);
}

RC_GTEST_PROP(MatchParametersProperty, AnAnswerWithoutEvidenceIsTheOnlyOneThatFits, ()) {
  // Weights of few shapes, dealt to two groups or to none, in order.
  const auto owners = *rc::gen::resize(8, rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3)));
  std::vector<Shape> candidates;
  std::vector<UnnamedGroup> groups(2);
  Assignment truth(2);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    candidates.push_back({*rc::gen::inRange<std::uint64_t>(1, 4)});
    if (owners[i] == 2) continue;
    groups[static_cast<std::size_t>(owners[i])].shapes.emplace_back(candidates.back());
    truth[static_cast<std::size_t>(owners[i])].push_back(i);
  }
  const auto found = match_parameters(candidates, groups, {});
  RC_ASSERT(found.has_value());
  if (found->has_value()) RC_ASSERT(**found == truth);
  const auto proven = match_parameters(candidates, groups, from(truth));
  RC_ASSERT(proven.has_value());
  RC_ASSERT(proven->has_value());
  RC_ASSERT(**proven == truth);
}

}  // namespace
}  // namespace ckpt
