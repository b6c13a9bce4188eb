#include "catalog/failure_rate.hpp"

#include <algorithm>
#include <cmath>

namespace ckpt::catalog {
namespace {

constexpr int kMostTerms = 100'000;  // a few times the square root of the largest sensible count of failures
constexpr double kTiny = 1e-300;

/// ln(Gamma(a)) by Stirling's series, shifted to where it has all digits. std::lgamma writes a global, and this may run
/// in a trainer with threads.
double log_gamma(double a) {
  double shift = 0;
  for (; a < 15; a += 1) shift += std::log(a);
  const double r = 1 / a;
  const double series = r * (1.0 / 12 - r * r * (1.0 / 360 - r * r * (1.0 / 1260 - r * r / 1680)));
  return (a - 0.5) * std::log(a) - a + 0.918938533204672742 + series - shift;
}

}  // namespace

double gamma_below(double a, double x) {
  if (!(x > 0)) return 0;
  const double scale = std::exp(a * std::log(x) - x - log_gamma(a));
  if (x < a + 1) {  // the power series converges faster
    double term = 1 / a;
    double sum = term;
    for (int n = 1; n < kMostTerms && term > sum * 1e-16; ++n) {
      term *= x / (a + n);
      sum += term;
    }
    return std::min(1.0, sum * scale);
  }
  // Continued fraction of the upper part (Lentz).
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double fraction = d;
  for (int n = 1; n < kMostTerms; ++n) {
    const double factor = -n * (n - a);
    b += 2;
    d = factor * d + b;
    d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
    c = b + factor / c;
    c = std::fabs(c) < kTiny ? kTiny : c;
    fraction *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return std::clamp(1 - fraction * scale, 0.0, 1.0);
}

double gamma_quantile(double a, double p) {
  double low = 0;
  double high = a + 1;
  while (gamma_below(a, high) < p && high < 1e18) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
    const double middle = (low + high) / 2;
    (gamma_below(a, middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double mtbf_quantile(const FailureHistory& history, double p) {
  const double time = std::max(0.0, history.uptime_s) + std::max(1.0, history.prior_mtbf_s);
  return time / gamma_quantile(1 + static_cast<double>(history.failures), 1 - p);
}

MtbfEstimate estimate_mtbf(const FailureHistory& history) {
  const double seen = std::max(0.0, history.uptime_s);
  const double time = seen + std::max(1.0, history.prior_mtbf_s);
  const auto failures = static_cast<double>(history.failures);
  MtbfEstimate out{.mean_s = time / (1 + failures)};
  if (history.failures != 0) out.likeliest_s = seen / failures;
  out.low_s = mtbf_quantile(history, 0.05);
  out.high_s = mtbf_quantile(history, 0.95);
  return out;
}

}  // namespace ckpt::catalog
