#include "cli/report/curve_text.hpp"

#include <gtest/gtest.h>

#include <string>

#include "catalog/curve.hpp"
#include "catalog/interval.hpp"

namespace ckpt::cli {
namespace {

TEST(Curve, TextMarksTheNearestRow) {
  const catalog::Costs costs{.stall_s = 60, .restart_s = 600, .mtbf_s = 7.9 * 3600};
  const auto points = catalog::curve(costs, 100, 10000, 3);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].interval_s, 1000, 1e-6);
  EXPECT_NEAR(points[1].lost, 1 - catalog::goodput(1000, costs), 1e-12);
  EXPECT_EQ(curve_text(points, {{catalog::young(costs), "Young"}, {1200, "20 x stall"}}, 10),
            "    100 s   38.98 %  ##########\n"
            " 16.7 min    9.34 %  ##  < Young, 20 x stall\n"
            "   2.78 h   18.87 %  #####\n");
}

TEST(Curve, TheSvgHasBothLinesAndItsMarksEscaped) {
  const catalog::Costs costs{.stall_s = 60, .restart_s = 600, .mtbf_s = 7.9 * 3600};
  const std::string svg =
      curve_svg(catalog::curve(costs, 100, 10000, 50), {{catalog::young(costs), "a<b & \"c\""}, {1e9, "far"}});
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("far"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos);
  EXPECT_TRUE(catalog::curve(costs, 0, 10, 5).empty());
  EXPECT_TRUE(catalog::curve(costs, 10, 10, 5).empty());
}

}  // namespace
}  // namespace ckpt::cli
