#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "catalog/curve.hpp"

/// The cost of every interval between saves, as a picture.
namespace ckpt::cli {

/// Rows of bars, for a terminal: the interval, the lost time, and the marks. `width` is that of the longest bar.
std::string curve_text(const std::vector<catalog::CurvePoint>& points, const std::vector<catalog::CurveMark>& marks,
                       std::size_t width);

/// A self-contained picture, 720 x 420.
std::string curve_svg(const std::vector<catalog::CurvePoint>& points, const std::vector<catalog::CurveMark>& marks);

}  // namespace ckpt::cli
