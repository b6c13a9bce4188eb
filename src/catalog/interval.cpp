#include "catalog/interval.hpp"

#include <algorithm>
#include <cmath>

namespace ckpt::catalog {
namespace {

bool usable(const Costs& costs) {
  return costs.stall_s > 0 && costs.mtbf_s > 0 && std::isfinite(costs.stall_s) && std::isfinite(costs.mtbf_s);
}

double behind(const Costs& costs) {
  return std::max(0.0, costs.drain_s - costs.stall_s);
}

}  // namespace

double young(const Costs& costs) {
  return usable(costs) ? std::sqrt(2 * costs.stall_s * costs.mtbf_s) : 0;
}

double daly(const Costs& costs) {
  if (!usable(costs)) return 0;
  if (costs.stall_s >= 2 * costs.mtbf_s) return costs.mtbf_s;
  const double ratio = costs.stall_s / (2 * costs.mtbf_s);
  return young(costs) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - costs.stall_s;
}

double best_interval(const Costs& costs) {
  if (!usable(costs)) return 0;
  // x = T/M solves 1 - x = e^-(x + c). The left falls faster than the right from x = 0 on, and at 1 is below it.
  const double c = costs.stall_s / costs.mtbf_s;
  double low = 0;
  double high = 1;
  for (int i = 0; i < 200; ++i) {
    const double x = (low + high) / 2;
    (x + std::expm1(-(x + c)) < 0 ? low : high) = x;
  }
  return low * costs.mtbf_s;
}

double goodput(double interval_s, const Costs& costs) {
  if (!(interval_s > 0) || !(costs.mtbf_s > 0)) return 0;
  const double m = costs.mtbf_s;
  const double restart = std::max(0.0, costs.restart_s) + behind(costs);
  const double wall = m * std::exp(restart / m) * std::expm1((interval_s + std::max(0.0, costs.stall_s)) / m);
  return std::isfinite(wall) ? interval_s / wall : 0;
}

double expected_loss(double interval_s, const Costs& costs) {
  if (!(interval_s > 0) || !(costs.mtbf_s > 0)) return 0;
  const double x = interval_s / costs.mtbf_s;
  // Below this the difference of two nearly equal numbers has lost its digits; the series is x/2 - x^2/12.
  const double part = x < 1e-5 ? x / 2 - x * x / 12 : 1 - x / std::expm1(x);
  return costs.mtbf_s * part + behind(costs);
}

double overhead(double interval_s, const Costs& costs) {
  const double whole = interval_s + costs.stall_s;
  return whole > 0 ? costs.stall_s / whole : 0;
}

BaseRule base_rule(double acceptable_rework_s, const Costs& costs, std::uint64_t in_flight) {
  const double cap = 20 * costs.stall_s;
  const double drain = 1.1 * costs.drain_s / static_cast<double>(std::max<std::uint64_t>(in_flight, 1));
  BaseRule out{.interval_s = std::max(acceptable_rework_s, 0.0)};
  if (cap > out.interval_s) out = {.interval_s = cap, .limit = BaseRule::Limit::overhead};
  if (drain > out.interval_s) out = {.interval_s = drain, .limit = BaseRule::Limit::drain};
  out.rework_missed = acceptable_rework_s > 0 && out.limit != BaseRule::Limit::rework;
  out.saves_too_rarely = costs.mtbf_s > 0 && costs.mtbf_s < 200 * costs.stall_s;
  return out;
}

const char* limit_name(BaseRule::Limit limit) {
  switch (limit) {
    case BaseRule::Limit::rework:
      return "rework";
    case BaseRule::Limit::overhead:
      return "overhead cap";
    case BaseRule::Limit::drain:
      return "drain";
  }
  return "";
}

double bandwidth_for(double bytes, double acceptable_rework_s) {
  return acceptable_rework_s > 0 ? 20 * bytes / acceptable_rework_s : 0;
}

std::uint64_t aligned_steps(double interval_s, double step_s) {
  if (!(interval_s > 0) || !(step_s > 0)) return 1;
  const double steps = std::round(interval_s / step_s);
  return steps >= 1 && steps < 1e18 ? static_cast<std::uint64_t>(steps) : steps < 1 ? 1 : 1'000'000'000'000'000'000u;
}

double waste(const DrainedTiers& tiers, double interval_s, std::uint64_t every) {
  const Costs& near = tiers.near;
  const double far_interval = interval_s * static_cast<double>(every);
  const double loss = (1 - tiers.lost) * interval_s / 2 + tiers.lost * (far_interval / 2 + tiers.drain_s);
  return near.stall_s / interval_s + (loss + behind(near) + std::max(0.0, near.restart_s)) / near.mtbf_s;
}

TwoTiers best_tiers(const DrainedTiers& tiers) {
  const Costs& near = tiers.near;
  if (!usable(near) || !(tiers.drain_s >= 0) || !(tiers.lost >= 0 && tiers.lost <= 1)) return {};
  constexpr std::uint64_t kMostEvery = 10'000;
  TwoTiers best;
  for (std::uint64_t k = 1; k <= kMostEvery; ++k) {
    const auto every = static_cast<double>(k);
    const double free_interval = std::sqrt(2 * near.stall_s * near.mtbf_s / (1 - tiers.lost + tiers.lost * every));
    const double floor = std::max(1.1 * tiers.drain_s / every, 1.1 * near.drain_s);
    const double interval = std::max(free_interval, floor);
    const double wasted = waste(tiers, interval, k);
    if (best.interval_s == 0 || wasted < best.waste) best = {.interval_s = interval, .every = k, .waste = wasted};
    // From here on a greater k only lets more be lost.
    if (free_interval >= floor || floor <= 1.1 * near.drain_s) break;
  }
  return best;
}

}  // namespace ckpt::catalog
