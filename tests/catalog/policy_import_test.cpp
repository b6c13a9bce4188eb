#include "catalog/policy_import.hpp"

#include <gtest/gtest.h>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

using Kind = Rule::Kind;

ImportedPolicy imported(std::string_view system, const ForeignOptions& options) {
  auto out = import_policy(system, options);
  EXPECT_TRUE(out) << system << ": " << (out ? "" : out.error().message);
  return out ? *std::move(out) : ImportedPolicy{};
}
std::string error_of(std::string_view system, const ForeignOptions& options) {
  const auto out = import_policy(system, options);
  return out ? "no error" : out.error().message;
}

TEST(PolicyImport, OrbaxIsAUnionInWhichTheBestReplaceTheNewest) {
  Policy policy =
      imported("orbax", {{"max_to_keep", "3"}, {"keep_period", "1000"}, {"keep_time_interval", "3600"}}).policy;
  ASSERT_EQ(policy.keep.size(), 3u);
  EXPECT_EQ(policy.keep[0].step_interval, 1000u);
  EXPECT_EQ(policy.keep[1].duration, kHour);
  EXPECT_EQ(policy.keep[2].kind, Kind::last);
  EXPECT_EQ(policy.keep[2].count, 3u);
  const ImportedPolicy best = imported("orbax", {{"max_to_keep", "2"}, {"best_metric", "acc"}});
  ASSERT_EQ(best.policy.keep.size(), 1u);
  EXPECT_EQ(best.policy.keep[0].better, Rule::Better::higher);
  EXPECT_EQ(best.policy.keep[0].missing, Rule::Missing::keep);
  EXPECT_EQ(best.differences.front(),
            "Orbax with best_fn may delete the newest checkpoint; here the newest is always kept.");
  EXPECT_EQ(imported("orbax", {}).policy.keep[0].count, std::nullopt);
}

TEST(PolicyImport, OrbaxKeepsItsNewestHereWhereBestWouldDeleteIt) {
  // Its own test saves steps 0 to 9 and ends with two; the newest is not among the best.
  std::vector<Checkpoint> all;
  for (std::uint64_t i = 0; i < 10; ++i) {
    all.push_back(saved(i, kHour * static_cast<int>(i)));
    all.back().metrics = {{"acc", i == 1 || i == 5 ? 1.0 : 0.5}};
  }
  const Policy policy = imported("orbax", {{"max_to_keep", "2"}, {"best_metric", "acc"}}).policy;
  EXPECT_EQ(kept(*retain(all, policy, {.now = kStart + kDay}), all), (std::vector<std::uint64_t>{1, 5, 9}));
}

TEST(PolicyImport, TheTrainersLimitWithABestOne) {
  Policy policy = imported("hf", {{"save_total_limit", "3"}, {"load_best_model_at_end", "True"}}).policy;
  ASSERT_EQ(policy.keep.size(), 2u);
  EXPECT_EQ(policy.keep[0].count, 2u);
  EXPECT_EQ(policy.keep[1].metric, "eval_loss");
  policy = imported("hf", {{"save_total_limit", "1"}, {"load_best_model_at_end", "True"}}).policy;
  EXPECT_EQ(policy.keep[0].count, 1u);  // its limit of 1 keeps two
  // As TrainingArguments has it: lower is better only of what ends in "loss", where nothing else is said.
  const auto better = [](ForeignOptions options) {
    options.insert(options.end(), {{"save_total_limit", "3"}, {"load_best_model_at_end", "True"}});
    return imported("hf", options).policy.keep[1].better;
  };
  EXPECT_EQ(better({}), Rule::Better::lower);
  EXPECT_EQ(better({{"metric_for_best_model", "eval_loss"}}), Rule::Better::lower);
  EXPECT_EQ(better({{"metric_for_best_model", "accuracy"}}), Rule::Better::higher);
  EXPECT_EQ(better({{"metric_for_best_model", "wer"}, {"greater_is_better", "False"}}), Rule::Better::lower);
  for (const char* none : {"None", "0", "-1"})
    EXPECT_EQ(imported("hf", {{"save_total_limit", none}}).policy.keep[0].count, std::nullopt);
}

TEST(PolicyImport, LightningTensorFlowMegatronVelocAndScr) {
  Policy policy =
      imported("lightning", {{"save_top_k", "2"}, {"monitor", "val"}, {"mode", "max"}, {"save_last", "True"}}).policy;
  ASSERT_EQ(policy.keep.size(), 2u);
  EXPECT_EQ(policy.keep[0].kind, Kind::best);
  EXPECT_EQ(policy.keep[0].better, Rule::Better::higher);
  EXPECT_EQ(imported("lightning", {{"save_top_k", "2"}, {"monitor", "v"}, {"save_last", "link"}}).policy.keep.size(),
            2u);
  EXPECT_EQ(imported("lightning", {{"save_top_k", "-1"}, {"monitor", "v"}}).policy.keep[0].count, std::nullopt);
  EXPECT_EQ(error_of("lightning", {{"save_top_k", "3"}}), "save_top_k: more than 1 needs monitor");
  policy = imported("tf", {{"keep_checkpoint_every_n_hours", "2"}}).policy;
  EXPECT_EQ(policy.keep[0].count, 5u);
  EXPECT_EQ(policy.keep[1].duration, kHour * 2);
  policy = imported("megatron", {{"save_retain_interval", "1000"}}).policy;
  EXPECT_EQ(policy.keep[0].step_interval, 1000u);
  EXPECT_EQ(policy.keep[1].count, 1u);
  EXPECT_EQ(imported("megatron", {}).policy.keep[0].count, std::nullopt);
  EXPECT_EQ(imported("veloc", {{"max_versions", "4"}}).policy.keep[0].count, 4u);
  EXPECT_EQ(imported("veloc", {{"max_versions", "0"}}).policy.keep[0].count, std::nullopt);
  policy = imported("scr", {{"SCR_PREFIX_SIZE", "2"}}).policy;
  EXPECT_EQ(policy.keep[1].tags, std::vector<std::string>{"output"});
}

TEST(PolicyImport, ResticSharesAndBorgDoesNot) {
  std::vector<Checkpoint> all;
  for (std::uint64_t i = 0; i < 96; ++i) all.push_back(saved(i, kHour * static_cast<int>(i)));
  const ForeignOptions options{{"keep-last", "2"}, {"keep-daily", "2"}};
  const Situation situation{.now = kStart + kDay * 5};
  EXPECT_EQ(kept(*retain(all, imported("restic", options).policy, situation), all),
            (std::vector<std::uint64_t>{71, 94, 95}));
  EXPECT_EQ(kept(*retain(all, imported("borg", options).policy, situation), all),
            (std::vector<std::uint64_t>{47, 71, 94, 95}));
  const Policy policy =
      imported("restic", {{"keep-within", "1y2m3d4h"}, {"keep-yearly", "-1"}, {"keep-tag", "x"}}).policy;
  EXPECT_EQ(policy.keep[0].count, std::nullopt);
  EXPECT_EQ(policy.keep[1].duration, kDay * (365 + 60 + 3) + kHour * 4);
  EXPECT_EQ(imported("borg", {{"keep-within", "2d"}}).policy.keep[0].from, Rule::From::now);
}

TEST(PolicyImport, WhatIsNotKnownOrKeepsNothingIsRefused) {
  EXPECT_EQ(error_of("orbx", {}), "unknown system 'orbx'");
  EXPECT_EQ(error_of("hf", {{"save_limit", "3"}}), "unknown option of hf 'save_limit'");
  EXPECT_EQ(import_policy("hf", {{"save_totl_limit", "3"}}).error().hint, "did you mean 'save_total_limit'?");
  EXPECT_EQ(import_policy("megatron", {{"keep", "3"}}).error().hint, "known: save_retain_interval, most_recent_k");
  EXPECT_EQ(error_of("orbax", {{"max_to_keep", "0"}}), "orbax: these options keep nothing: refused");
  EXPECT_EQ(error_of("restic", {}), "restic: these options keep nothing: refused");
  EXPECT_EQ(error_of("lightning", {{"save_top_k", "0"}}), "lightning: these options keep nothing: refused");
  for (const auto& [system, key, value] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"orbax", "max_to_keep", "many"},
           {"orbax", "keep_period", "0"},
           {"tf", "max_to_keep", "0"},
           {"hf", "save_total_limit", "x"},
           {"hf", "load_best_model_at_end", "maybe"},
           {"restic", "keep-within", "2x"},
           {"restic", "keep-within", "2"},
           {"restic", "keep-within", "99999999999999999999y"},
           {"borg", "keep-daily", "-5"}})
    EXPECT_NE(error_of(system, {{key, value}}), "no error") << system << " " << key;
}

TEST(PolicyImport, EverySystemsDefaultsAreReadOrRefused) {
  EXPECT_EQ(foreign_systems().size(), 9u);
  for (const std::string& system : foreign_systems()) {
    const std::string error = error_of(system, {});
    EXPECT_TRUE(error == "no error" || error.ends_with("options keep nothing: refused")) << error;
  }
}

}  // namespace
}  // namespace ckpt::catalog
