#include "catalog/policy_flags.hpp"

#include <gtest/gtest.h>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

std::string error_of(std::string_view flag, std::string_view value) {
  Policy policy;
  const auto added = add_flag(policy, flag, value);
  return added ? "no error" : added.error().message;
}

TEST(PolicyFlags, KeepIsAListOfRules) {
  Policy policy;
  ASSERT_TRUE(add_flag(policy, "keep", "last=3,6h*8,1d*14,best=loss:2,best=acc:1:max,tag=release,daily=all,steps=5"));
  ASSERT_EQ(policy.keep.size(), 8u);
  EXPECT_EQ(policy.keep[0].count, 3u);
  EXPECT_EQ(policy.keep[1].kind, Rule::Kind::every);
  EXPECT_EQ(policy.keep[1].duration, kHour * 6);
  EXPECT_EQ(policy.keep[1].max, 8u);
  EXPECT_EQ(policy.keep[2].duration, kDay);
  EXPECT_EQ(policy.keep[2].id, "every#2");
  EXPECT_EQ(policy.keep[3].metric, "loss");
  EXPECT_EQ(policy.keep[3].count, 2u);
  EXPECT_EQ(policy.keep[4].better, Rule::Better::higher);
  EXPECT_EQ(policy.keep[5].tags, std::vector<std::string>{"release"});
  EXPECT_EQ(policy.keep[6].count, std::nullopt);
  EXPECT_EQ(policy.keep[7].steps, std::vector<std::uint64_t>{5});
}

TEST(PolicyFlags, EachFlagOfPruneIsARuleOrALimit) {
  Policy policy;
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{{"keep-last", "2"},
                                                                                    {"keep-every", "5000"},
                                                                                    {"keep-within", "2d"},
                                                                                    {"keep-daily", "7"},
                                                                                    {"keep-best", "loss:3"},
                                                                                    {"max-size", "20T"},
                                                                                    {"min-free", "10%"},
                                                                                    {"max-delete", "30%"},
                                                                                    {"grace", "0"},
                                                                                    {"purge-early-below", "2%"}}) {
    ASSERT_TRUE(add_flag(policy, flag, value)) << flag;
  }
  EXPECT_EQ(policy.keep[1].kind, Rule::Kind::every_steps);
  EXPECT_EQ(policy.keep[1].step_interval, 5000u);
  EXPECT_EQ(policy.keep[1].step_mode, Rule::StepMode::exact);
  EXPECT_EQ(policy.keep[2].from, Rule::From::newest);
  EXPECT_EQ(policy.keep[4].count, 3u);
  EXPECT_EQ(policy.pressure.max_size->bytes, 20ull << 40);
  EXPECT_EQ(policy.pressure.min_free->percent, 10.0);
  EXPECT_DOUBLE_EQ(policy.guard.max_delete_fraction, 0.3);
  EXPECT_EQ(policy.trash.ttl, Duration{});
  EXPECT_EQ(policy.trash.purge_early_when_free_below->percent, 2.0);
}

TEST(PolicyFlags, TheBestOfAMetricGoesByItsNameUnlessSaid) {
  for (const auto& [text, better] : {std::pair("loss:2", Rule::Better::lower),
                                     {"eval/acc:2", Rule::Better::higher},
                                     {"acc:2:min", Rule::Better::lower},
                                     {"loss:max", Rule::Better::higher},
                                     {"accuracy_loss", Rule::Better::lower},
                                     {"F1", Rule::Better::higher}}) {
    Policy policy;
    ASSERT_TRUE(add_flag(policy, "keep-best", text)) << text;
    EXPECT_EQ(policy.keep.front().better, better) << text;
  }
}

TEST(PolicyFlags, EveryFlagIsKnown) {
  for (const std::string& flag : policy_flags())
    EXPECT_EQ(error_of(flag, "\n").find("no such flag"), std::string::npos) << flag;
}

TEST(PolicyFlags, ErrorsNameTheFlagAndTheWord) {
  EXPECT_EQ(error_of("keep", "lats=3"), "--keep: 'lats=3': unknown rule 'lats'");
  EXPECT_EQ(error_of("keep", "last=3*2"), "--keep: 'last=3*2': the count is already the limit; omit *2");
  EXPECT_EQ(error_of("keep-last", "-2"), "--keep-last: '-2' is not a whole number of at least 0");
  EXPECT_EQ(error_of("keep-every", "0"), "--keep-every: '0' is not a whole number of at least 1");
  EXPECT_EQ(error_of("keep-within", "0s"), "--keep-within: '0s' is not a time above 0");
  EXPECT_EQ(error_of("max-delete", "150%"), "--max-delete: '150%' is not a percentage");
  EXPECT_EQ(error_of("max-delete", "nan%"), "--max-delete: 'nan%' is not a percentage");
  EXPECT_EQ(error_of("keep-lats", "1"), "--keep-lats: unknown policy option");
  EXPECT_EQ(error_of("keep-best", ":3"), "--keep-best: ':3' lacks a metric, e.g. loss:3");
  EXPECT_NE(error_of("keep", ""), "no error");
  EXPECT_NE(error_of("keep", "last=1,,last=2"), "no error");
}

TEST(PolicyFlags, ACountOfNothingIsNoPolicy) {
  for (const char* text : {"last=0", "daily=0,best=loss:0", "6h*0"}) {
    Policy policy;
    ASSERT_TRUE(add_flag(policy, "keep", text)) << text;
    EXPECT_TRUE(is_empty(policy)) << text;
  }
  EXPECT_TRUE(is_empty(Policy{}));
}

}  // namespace
}  // namespace ckpt::catalog
