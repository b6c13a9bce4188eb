#include <gtest/gtest.h>

#include "catalog/policy_toml.hpp"

namespace ckpt::catalog {
namespace {

Result<PolicyFile> read(std::string_view text) {
  return parse_policy_file(text, "ckpt.toml");
}

TEST(IntervalToml, EveryKeyIsRead) {
  const auto file = read(
      "[interval]\nevery_steps = 500\nevery = \"30m\"\noptimal = true\nbefore_end = \"5m\"\nmax_overhead = \"3%\"\n"
      "min_interval = \"2m\"\nmax_interval = \"6h\"\nhysteresis = 0.1\nmtbf = \"234h\"\nrestart = \"10m\"\n"
      "on_signal = false\nat_start = true\n");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->policies.empty());
  const IntervalRules wanted{.policy = {.every_steps = 500,
                                        .every_s = 1800,
                                        .optimal = true,
                                        .on_signal = false,
                                        .before_end_s = 300,
                                        .most_overhead = 0.03,
                                        .least_interval_s = 120,
                                        .most_interval_s = 21600,
                                        .hysteresis = 0.1,
                                        .at_start = true},
                             .mtbf_s = 234 * 3600,
                             .restart_s = 600};
  EXPECT_EQ(file->interval, wanted);
  EXPECT_EQ(interval_meaning(*file->interval).size(), 7u);
}

TEST(IntervalToml, ItStandsBesideEitherFormAndChangesNoPolicy) {
  const std::string_view rules = "[[rule]]\nruns = \"*\"\nkeep = { last = 3 }\n";
  const std::string_view interval = "[interval]\nevery_steps = 5\nmax_overhead = 0.5\n";
  const auto both = read(std::string(rules) + std::string(interval));
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->policies, *parse_policies(rules, "ckpt.toml"));
  EXPECT_EQ(both->interval->policy.most_overhead, 0.5);
  EXPECT_FALSE(read(rules)->interval);
  EXPECT_TRUE(read("keep = [ { last = 1 } ]\n" + std::string(interval))->interval);
}

TEST(IntervalToml, ARuleOfARunStandsInPlaceOfTheTable) {
  const auto file = read(
      "[interval]\nevery_steps = 5\n[[rule]]\nruns = \"prod/*\"\ninterval = { every = \"10m\" }\n"
      "[[rule]]\nruns = \"*\"\nkeep = { last = 3 }\n[[rule]]\nruns = \"prod/a\"\n[rule.interval]\noptimal = true\n");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->policies.size(), 1u) << "a rule that says nothing of what to keep decided about it";
  EXPECT_EQ(file->policies[0].runs, "*");
  EXPECT_EQ(interval_of(*file, "prod/a")->policy.every_s, 600);
  EXPECT_FALSE(interval_of(*file, "prod/a")->policy.every_steps) << "the tables were mixed";
  EXPECT_EQ(interval_of(*file, "test")->policy.every_steps, 5u);
  EXPECT_EQ(interval_of(*read("[[rule]]\nruns = \"a\"\ninterval = { every_steps = 2 }\n"), "b"), nullptr);
  const auto full = read("keep = [ { last = 1 } ]\n[[rule]]\nruns = \"a\"\ninterval = { every_steps = 2 }\n");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->policies, *parse_policies("keep = [ { last = 1 } ]\n", "ckpt.toml"));
  EXPECT_EQ(interval_of(*full, "a")->policy.every_steps, 2u);
}

TEST(IntervalToml, WhatIsWrongIsToldWithItsLine) {
  for (const auto& [text, error] : {
           std::pair{"[interval]\nevery_step = 5\n", "line 2 column 1: unknown key 'every_step' in [interval]"},
           {"[interval]\nevery_steps = 0\n", "line 2 column 15: every_steps: expected a whole number of at least 1"},
           {"[interval]\nevery = \"0s\"\n", "line 2 column 9: every: expected a time above 0"},
           {"[interval]\nevery = \"soon\"\n", "every: 'soon'"},
           {"[interval]\nevery = \"1h\"\nmax_overhead = 3\n",
            "line 3 column 16: max_overhead: expected a share above 0"},
           {"[interval]\nevery = \"1h\"\nmax_overhead = \"0%\"\n", "max_overhead: expected a share above 0"},
           {"[interval]\noptimal = true\nhysteresis = 2\n", "hysteresis: expected a number from 0 to 1"},
           {"[interval]\noptimal = true\nmin_interval = \"2h\"\nmax_interval = \"1h\"\n", "longer than max_interval"},
           {"[interval]\nmax_overhead = \"3%\"\n", "[interval]: no rule asks for a save"},
           {"interval = 5\n", "interval"},
           {"[[rule]]\nruns = \"a\"\ninterval = { every_step = 5 }\n",
            "unknown key 'every_step' in interval of [[rule]]"},
           {"[[rule]]\nruns = \"a\"\ninterval = { max_overhead = 0.5 }\n",
            "interval of [[rule]]: no rule asks for a save"},
           {"[[rule]]\ninterval = { every_steps = 5 }\n", "runs = \"GLOB\" is missing"},
           {"keep = [ { last = 1 } ]\n[[rule]]\nruns = \"a\"\nkeep = { last = 1 }\n", "cannot be combined with keep"},
       }) {
    const auto file = read(text);
    ASSERT_FALSE(file) << text;
    EXPECT_EQ(file.error().code, Errc::usage);
    EXPECT_NE(file.error().message.find(error), std::string::npos) << file.error().message;
  }
  const auto mistyped = read("[interval]\nevery_step = 5\n");
  EXPECT_NE(mistyped.error().hint.find("every_steps"), std::string::npos) << mistyped.error().hint;
  EXPECT_TRUE(read("[interval]\non_signal = true\n")) << "a stop alone may be all";
}

}  // namespace
}  // namespace ckpt::catalog
