#include "catalog/policy_toml.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "catalog/history.hpp"
#include "catalog/random_policy.hpp"

namespace ckpt::catalog {
namespace {

constexpr const char* kFull = R"(
keep = [
  { id = "recent",    last = 3 },
  { id = "period",    every_steps = 10000, mode = "exact" },
  { id = "spaced",    every = "6h", anchor = "oldest", max = 5 },
  { id = "gfs",       hourly = 24, daily = 7, yearly = -1, keep_oldest_if_short = false },
  { id = "window",    within = "36h", relative_to = "newest" },
  { id = "best",      best = 3, metric = "eval/loss", mode = "min", missing = "keep", nan = "worst" },
  { id = "first",     first = 1 },
  { id = "milestone", steps = [0, 1000, 50000] },
  { id = "tagged",    tags_any = ["release", "eval"], where = "kind == 'weights' and tier == 'nfs'" },
]
[policy]
version  = 1
name     = "pretrain"
group_by = ["run"]
order    = "series, step"
count    = "exclusive"
tz       = "+02:00"
drop_optimizer_after = "7d"
[guard]
newest = 2
min_age = "10m"
max_delete_fraction = 0.25
require_verified_successor = true
[pressure]
min_free = "10%"
headroom = "2.0 x last_size"
relax = ["gfs", "spaced", "window"]
never = ["best", "milestone"]
[trash]
ttl = "48h"
recycle = 2
)";

Policy only(std::string_view text) {
  const auto policies = parse_policies(text, "ckpt.toml");
  EXPECT_TRUE(policies) << (policies ? "" : policies.error().message);
  EXPECT_EQ(policies->size(), 1u);
  return policies->front();
}
std::string error_of(std::string_view text) {
  const auto policies = parse_policies(text, "ckpt.toml");
  return policies ? "no error" : policies.error().message;
}
std::string hint_of(std::string_view text) {
  const auto policies = parse_policies(text, "ckpt.toml");
  return policies ? "no error" : policies.error().hint;
}

TEST(PolicyToml, TheFullFormIsReadWhole) {
  const Policy policy = only(kFull);
  ASSERT_EQ(policy.keep.size(), 11u);
  EXPECT_EQ(policy.keep[0].count, 3u);
  EXPECT_EQ(policy.keep[2].max, 5u);
  EXPECT_EQ(policy.keep[3].id, "gfs.hourly");
  EXPECT_FALSE(policy.keep[3].oldest_if_short);
  EXPECT_EQ(policy.keep[5].id, "gfs.yearly");
  EXPECT_EQ(policy.keep[5].count, std::nullopt);
  EXPECT_EQ(policy.keep[6].duration, kHour * 36);
  EXPECT_EQ(policy.keep[7].missing, Rule::Missing::keep);
  EXPECT_EQ(policy.keep[9].steps, (std::vector<std::uint64_t>{0, 1000, 50000}));
  EXPECT_TRUE(policy.keep[10].where);
  EXPECT_TRUE(policy.exclusive);
  EXPECT_EQ(policy.zone.east, std::chrono::hours(2));
  EXPECT_EQ(policy.drop_optimizer_after, kDay * 7);
  EXPECT_EQ(policy.guard.newest, 2u);
  EXPECT_EQ(policy.guard.newest_verified, 1u);
  EXPECT_DOUBLE_EQ(policy.guard.max_delete_fraction, 0.25);
  EXPECT_TRUE(policy.guard.require_verified_successor);
  EXPECT_EQ(policy.pressure.relax,
            (std::vector<std::string>{"gfs.hourly", "gfs.daily", "gfs.yearly", "spaced", "window"}));
  EXPECT_EQ(policy.pressure.headroom, 2.0);
  EXPECT_EQ(policy.trash.ttl, kHour * 48);
  EXPECT_EQ(policy.trash.recycle, 2u);
}

TEST(PolicyToml, TheShortFormIsAPolicyForEachGlob) {
  const auto policies = parse_policies(R"(
[[rule]]
runs = "prod/*"
keep = { last = 3, every_steps = 5000, daily = 14, best = { metric = "loss", n = 2, lower = true } }
drop_optimizer_after = "7d"
[[rule]]
runs = "scratch/*"
keep = { last = 1, within = "2d" }
max_size = "5 TB"
[[rule]]
runs = "free/*"
min_free = "10%"
[trash]
ttl = "1h"
)",
                                       "ckpt.toml");
  ASSERT_TRUE(policies) << policies.error().message;
  ASSERT_EQ(policies->size(), 3u);
  const Policy& prod = policies->at(0);
  ASSERT_EQ(prod.keep.size(), 4u);
  EXPECT_EQ(prod.keep[3].metric, "loss");
  EXPECT_EQ(prod.keep[3].better, Rule::Better::lower);
  EXPECT_EQ(prod.keep[3].count, 2u);
  EXPECT_EQ(prod.drop_optimizer_after, kDay * 7);
  EXPECT_EQ(prod.trash.ttl, kHour);
  EXPECT_EQ(policies->at(1).pressure.max_size->bytes, 5'000'000'000'000u);
  EXPECT_FALSE(policies->at(1).drop_optimizer_after);
  EXPECT_FALSE(is_empty(policies->at(2)));  // all of them, as far as there is space
  EXPECT_EQ(policy_of(*policies, "prod/a"), &policies->at(0));
  EXPECT_EQ(policy_of(*policies, "scratch/b"), &policies->at(1));
  EXPECT_EQ(policy_of(*policies, "other"), nullptr);
}

TEST(PolicyToml, UnknownKeysAreErrorsWithTheirPlaceAndTheNearestKnownOne) {
  EXPECT_EQ(error_of("[guard]\nnewest = 1\nnewest_verifed = 1\n"),
            "ckpt.toml: line 3 column 1: unknown key 'newest_verifed' in [guard]");
  EXPECT_EQ(hint_of("[guard]\nnewest_verifed = 1\n"), "did you mean 'newest_verified'?");
  EXPECT_EQ(error_of("keep = [ { last = 3, wher = 'x' } ]"),
            "ckpt.toml: line 1 column 22: unknown key 'wher' in [[keep]]");
  EXPECT_EQ(hint_of("keep = [ { lasst = 3 } ]"), "did you mean 'last'?");
  EXPECT_EQ(error_of("[[rule]]\nruns='*'\nkeep = { lst = 1 }"),
            "ckpt.toml: line 3 column 10: unknown key 'lst' in keep");
  EXPECT_EQ(error_of("\nkepe = []"), "ckpt.toml: line 2 column 1: unknown key 'kepe' in the file");
  EXPECT_EQ(error_of("memory = '8G'"), "ckpt.toml: line 1 column 1: unknown key 'memory' in the file");
  EXPECT_TRUE(parse_policies("memory = '8G'", "ckpt.toml", {"memory"}));
}

TEST(PolicyToml, AnErrorInAFilterHasItsPlaceInTheFileAndInTheFilter) {
  EXPECT_EQ(error_of("keep = [ { last = 3, where = 'knd == 1' } ]"),
            "ckpt.toml: line 1 column 30: where: column 1: unknown name 'knd'");
}

TEST(PolicyToml, ValuesThatAKeyDoesNotTakeAreErrors) {
  for (const char* bad : {"keep = [ { last = '3x' } ]",
                          "keep = [ { last = -2 } ]",
                          "keep = [ { every_steps = 0 } ]",
                          "keep = [ { every = 6 } ]",
                          "keep = [ { every = '6 hours' } ]",
                          "keep = [ { every = '0s' } ]",
                          "keep = [ { every = '6h', anchor = 'newest' } ]",
                          "keep = [ { best = 3 } ]",
                          "keep = [ { best = 3, metric = 'l', mode = 'low' } ]",
                          "keep = [ { last = 1, first = 1 } ]",
                          "keep = [ { last = 1, daily = 1 } ]",
                          "keep = [ { } ]",
                          "keep = [ 3 ]",
                          "keep = 3",
                          "keep = [ { last = 1, max = 1 } ]",
                          "keep = [ { daily = -1, max = 1 } ]",
                          "keep = [ { id = 'a', last = 1 }, { id = 'a', first = 1 } ]",
                          "keep = [ { steps = [1, 'a'] } ]",
                          "keep = [ { steps = [-1] } ]",
                          "keep = [ { tags_any = 'a' } ]",
                          "keep = [ { last = 1, where = 'knid == 1' } ]",
                          "[policy]\nversion = 2",
                          "[policy]\norder = 'mtime'",
                          "[policy]\ntz = 'Europe/Paris'",
                          "[policy]\ngroup_by = ['path']",
                          "[policy]\ncount = 'both'",
                          "[guard]\nmax_delete_fraction = 1.5",
                          "[guard]\nnewest = 1.5",
                          "[guard]\nresume_source = 1",
                          "[pressure]\nrelax = ['none']",
                          "keep = [ { id = 'b', best = 1, metric = 'l' } ]\n[pressure]\nrelax = ['b']",
                          "keep = [ { id = 'a', last = 1 } ]\n[pressure]\nrelax = ['a']\nnever = ['a']",
                          "[guard]\nforeign_min_age = 3",
                          "[pressure]\nmin_free = '110%'",
                          "[pressure]\nheadroom = '2'",
                          "[trash]\nttl = '1y'",
                          "[[rule]]\nkeep = { last = 1 }",
                          "[[rule]]\nruns = '*'\n[policy]\nname = 'x'",
                          "keep = [ { last = 1 }",
                          "a = 1\na = 2",
                          "[#rule]",
                          "[[#rule]]",
                          "keep = [ { nan = 'worst', last = 1 } ]"}) {
    const std::string error = error_of(bad);
    EXPECT_TRUE(error.starts_with("ckpt.toml: line ")) << bad << ": " << error;
  }
}

TEST(PolicyToml, WhatIsNotAsciiStandsInLinesOfCommentsOnly) {
  const auto parsed = [](const std::string& text) { return parse_policies(text, "ckpt.toml", {}); };
  EXPECT_TRUE(parsed("\xef\xbb\xbf# caf\xc3\xa9\n  # \xc3\xa9\nkeep = [ { last = 2 } ]\n"));
  EXPECT_TRUE(parsed("keep = [ { tags_any = [\"caf\\u00e9\"] } ]\n"));
  for (const char* text : {"[[\xef\xbb\xbekeep]]\n", "keep = [ { last = \xc2\xa1 } ]\n", "a = 'b'\n\xe3\x80\x80\n",
                           "a = 'cut\n\xc3\xa9 = 1\n", "a = -\"\xef\xb8\xbf\"\n", "a = 1.\"\xc3\xa9\"\n",
                           "a = \"\"\"b\\\xc3\xa9\"\"\"\n"}) {
    const auto policies = parsed(text);
    ASSERT_FALSE(policies) << text;
    EXPECT_NE(policies.error().message.find("non-ASCII character"), std::string::npos) << policies.error().message;
  }
}

TEST(PolicyToml, DeepNestingIsRefused) {
  EXPECT_NE(error_of("keep = " + std::string(100'000, '[')), "no error");
}

TEST(PolicyToml, EqualPoliciesHaveOneFingerprint) {
  const Policy policy = only(kFull);
  Policy other = policy;
  EXPECT_EQ(fingerprint(policy), fingerprint(other));
  other.keep[0].count = 4;
  EXPECT_NE(fingerprint(policy), fingerprint(other));
  other = policy;
  other.trash.ttl = kHour;
  EXPECT_NE(fingerprint(policy), fingerprint(other));
}

RC_GTEST_PROP(PolicyToml, WhatIsWrittenReadsBack, ()) {
  const Policy policy = any_policy();
  const auto read = parse_policies(policy_text(policy), "ckpt.toml");
  if (!read) RC_FAIL(read.error().message + "\n" + policy_text(policy));
  RC_ASSERT(read->size() == 1u);
  RC_ASSERT(policy_text(read->front()) == policy_text(policy));
  RC_ASSERT(read->front() == policy);
}

}  // namespace
}  // namespace ckpt::catalog
