#pragma once

#include <string>
#include <vector>

#include "catalog/interval.hpp"

/// The cost of every interval between saves, as a picture.
namespace ckpt::catalog {

struct CurvePoint {
  double interval_s = 0;
  double lost = 0;    ///< part of wall time that is lost: 1 - goodput
  double saving = 0;  ///< of it: the stalls
};

/// A vertical line: an interval that has a name.
struct CurveMark {
  double interval_s = 0;
  std::string name{};
};

/// Points from `from_s` to `to_s`, equally far apart in the logarithm. Empty unless 0 < from < to and count >= 2.
std::vector<CurvePoint> curve(const Costs& costs, double from_s, double to_s, std::size_t count);

/// Rows of bars, for a terminal: the interval, the lost time, and the marks. `width` is that of the longest bar.
std::string curve_text(const std::vector<CurvePoint>& points, const std::vector<CurveMark>& marks, std::size_t width);

/// A self-contained picture, 720 x 420.
std::string curve_svg(const std::vector<CurvePoint>& points, const std::vector<CurveMark>& marks);

}  // namespace ckpt::catalog
