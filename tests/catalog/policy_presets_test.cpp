// Policy files to begin with, and policies in words.
#include "catalog/policy_presets.hpp"

#include <gtest/gtest.h>

#include "catalog/history.hpp"
#include "catalog/metric_order.hpp"
#include "catalog/policy_toml.hpp"
#include "catalog/report/policy_text.hpp"

namespace ckpt::catalog {
namespace {

Policy parsed(Preset preset, const Recorded& recorded = {}) {
  const auto policies = parse_policies(preset_text(preset, recorded), "ckpt.toml");
  EXPECT_TRUE(policies) << policies.error().message;
  EXPECT_EQ(policies ? policies->size() : 0, 1U);
  return policies ? policies->front() : Policy{};
}

TEST(PolicyPresets, EachParsesWhateverTheStoreRecords) {
  const Recorded hostile{.metrics = {"a\"]\nlast = 0", "back\\slash", "f\xc3\xbcr", ""},
                         .tags = {"x\"]\nruns = \"", "line\nbreak", "\xff", ""}};
  for (const Preset preset : {Preset::research, Preset::production, Preset::space}) {
    const Policy plain = parsed(preset);
    EXPECT_EQ(policy_text(parsed(preset, hostile)), policy_text(plain)) << "names that a file cannot hold are left out";
    EXPECT_FALSE(is_empty(plain));
    EXPECT_EQ(plain.runs, "*");
  }
}

TEST(PolicyPresets, ResearchRanksByTheMetricOfAnEvaluation) {
  EXPECT_EQ(ranking_metric({"loss", "eval_accuracy", "eval_loss"}), "eval_loss");
  EXPECT_EQ(ranking_metric({"grad_norm", "loss"}), "loss");
  EXPECT_EQ(ranking_metric({"bleu", "accuracy"}), "accuracy");
  EXPECT_EQ(ranking_metric({}), "");
  EXPECT_TRUE(is_higher_better("eval_accuracy") && is_higher_better("bleu") && !is_higher_better("score_loss"));
  const auto best = [](std::vector<std::string> metrics) {
    return parsed(Preset::research, {.metrics = std::move(metrics)}).keep.back();
  };
  EXPECT_EQ(best({"loss"}).better, Rule::Better::lower);
  EXPECT_EQ(best({"accuracy"}).better, Rule::Better::higher);
  EXPECT_NE(best({}).kind, Rule::Kind::best) << "a rule on a metric that nothing has stops prune";
}

TEST(PolicyPresets, ProductionNamesAFewTagsOfTheStore) {
  const auto tags = [](const Recorded& recorded) { return parsed(Preset::production, recorded).keep.back().tags; };
  EXPECT_EQ(tags({.tags = {"paper", "release"}}), (std::vector<std::string>{"keep", "release", "paper"}));
  EXPECT_EQ(tags({.tags = {"1", "2", "3", "4", "5", "6", "7", "8", "9"}}),
            (std::vector<std::string>{"keep", "release"}));
}

TEST(PolicyWords, AChangeIsEachLineThatOnlyOneOfTwoPoliciesHas) {
  Policy before = policy({rule(Rule::Kind::last, 3)});
  Policy after = before;
  after.keep.front().id = "newest";
  EXPECT_TRUE(policy_changes({before}, {after}).empty()) << "an id decides nothing";
  after.keep.front().count = 4;
  after.trash.ttl = {};
  std::string text;
  for (const PolicyChange& change : policy_changes({before}, {after}))
    text += (change.added ? "+" : "-") + change.line.text + "\n";
  EXPECT_EQ(
      text,
      "-the newest 3\n-deleted checkpoints can be restored for 24 h\n-it is emptied early if less than 5 % of the "
      "volume is free\n+the newest 4\n+deleted checkpoints cannot be restored\n");
  after.runs = "other";
  const auto replaced = policy_changes({before}, {after});
  EXPECT_EQ(replaced.size(), policy_lines(before).size() + policy_lines(after).size())
      << "another pattern: another policy";
}

TEST(PolicyWords, APolicyBehindAllRunsNeverApplies) {
  Policy all = policy({rule(Rule::Kind::last, 3)});
  Policy some = all;
  some.runs = "prod/*";
  EXPECT_TRUE(unreached_policies({some, all}).empty());
  EXPECT_EQ(unreached_policies({all, some}), std::vector<std::size_t>{1});
  EXPECT_EQ(unreached_policies({some, some, all}), std::vector<std::size_t>{1});
}

}  // namespace
}  // namespace ckpt::catalog
