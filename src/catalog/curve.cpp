#include "catalog/curve.hpp"

#include <cmath>

namespace ckpt::catalog {

std::vector<CurvePoint> curve(const Costs& costs, double from_s, double to_s, std::size_t count) {
  if (!(from_s > 0) || !(to_s > from_s) || count < 2 || !std::isfinite(to_s)) return {};
  std::vector<CurvePoint> out;
  const double step = std::log(to_s / from_s) / static_cast<double>(count - 1);
  for (std::size_t i = 0; i < count; ++i) {
    const double interval = from_s * std::exp(step * static_cast<double>(i));
    const double good = goodput(interval, costs);
    // Stalls take C/(T+C) of training time; time lost in failures contains stalls too.
    out.push_back({.interval_s = interval, .lost = 1 - good, .saving = good * costs.stall_s / interval});
  }
  return out;
}

}  // namespace ckpt::catalog
