#pragma once

#include <string>
#include <vector>

#include "catalog/interval.hpp"

/// The cost of every interval between saves.
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

}  // namespace ckpt::catalog
