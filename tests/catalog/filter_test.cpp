#include "catalog/filter.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "catalog/history.hpp"

namespace ckpt::catalog {
namespace {

bool matches(std::string_view text, const Checkpoint& one) {
  const auto filter = Filter::parse(text);
  EXPECT_TRUE(filter) << text << ": " << (filter ? "" : filter.error().message);
  return filter && filter->matches(one, kStart + kDay * 2);
}
std::string error_of(std::string_view text) {
  const auto filter = Filter::parse(text);
  return filter ? "no error" : filter.error().message;
}

Checkpoint example() {
  Checkpoint one = saved(1000, kDay);
  one.tags = {"eval", "paper"};
  one.attributes = {{"kind", "weights"}, {"tier", "nfs"}};
  one.metrics = {{"eval/loss", 2.5}, {"bad", std::nan("")}};
  return one;
}

TEST(Filter, ComparesWhatIsKnownOfACheckpoint) {
  const Checkpoint one = example();
  for (const char* yes :
       {"kind == 'weights' and tier == 'nfs'", "step >= 1000", "bytes == 10GiB", "age >= 1d", "age < 25h",
        "tag == 'eval'", "tag != 'none'", "run == \"r\"", "metric.eval/loss < 2.6", "state == 'complete'",
        "state == 'committed'", "format != 'dcp'", "generation == 1001", "not step < 5"}) {
    EXPECT_TRUE(matches(yes, one)) << yes;
  }
  for (const char* no : {"kind == 'all'", "tag != 'eval'", "step > 1000", "metric.none < 5", "metric.none >= 5",
                         "metric.bad <= 1", "metric.bad == 1", "format == 'dcp'"}) {
    EXPECT_FALSE(matches(no, one)) << no;
  }
  EXPECT_TRUE(matches("metric.none != 5", one));
  EXPECT_TRUE(matches("metric.bad != 5", one));
}

TEST(Filter, NotBindsBeforeAndBeforeOr) {
  const Checkpoint one = example();
  EXPECT_TRUE(matches("step == 1000 or step == 1 and step == 2", one));
  EXPECT_FALSE(matches("(step == 1000 or step == 1) and step == 2", one));
  EXPECT_FALSE(matches("not step == 1000 or step == 2", one));
  EXPECT_TRUE(matches("not (step == 1 or step == 2)", one));
  EXPECT_TRUE(matches("not not step == 1000", one));
  EXPECT_TRUE(matches("step == 2 and step == 1 or step == 1000", one));
}

TEST(Filter, SaysWhereItIsWrong) {
  EXPECT_EQ(error_of("knid == 'x'"), "column 1: unknown name 'knid'");
  EXPECT_EQ(Filter::parse("knid == 'x'").error().hint, "did you mean 'kind'?");
  EXPECT_EQ(error_of("step == 1 and"), "column 14: expected a comparison, e.g. kind == 'weights'");
  EXPECT_EQ(error_of("(step == 1"), "column 11: missing )");
  EXPECT_EQ(error_of("step == 1)"), "column 10: unmatched )");
  EXPECT_EQ(error_of("kind < 'a'"), "column 6: strings can only be compared by == and !=");
  EXPECT_EQ(error_of("kind = 'a'"), "column 6: use == to compare");
  EXPECT_EQ(error_of("kind == a"), "column 9: expected a quoted string: 'a'");
  EXPECT_EQ(error_of("kind == 'a"), "column 9: missing closing quote");
  EXPECT_EQ(error_of("step == many"), "column 9: 'many' is not a value of step");
  EXPECT_EQ(error_of("age < 7q"), "column 7: '7q' is not a value of age");
  EXPECT_EQ(error_of("step == 1 step == 2"), "column 11: expected 'and' or 'or'");
  EXPECT_NE(error_of(""), "no error");
  EXPECT_NE(error_of("step = 1"), "no error");
}

TEST(Filter, NestingAndLengthHaveLimits) {
  EXPECT_NE(error_of(std::string(5000, '(')), "no error");
  EXPECT_NE(error_of(std::string(100, '(') + "step == 1" + std::string(100, ')')), "no error");
  EXPECT_EQ(error_of(std::string(30, '(') + "step == 1" + std::string(30, ')')), "no error");
}

}  // namespace
}  // namespace ckpt::catalog
