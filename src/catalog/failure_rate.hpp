#pragma once

#include <cstdint>
#include <optional>

/// The mean time between failures, from observed failures.
namespace ckpt::catalog {

struct FailureHistory {
  double uptime_s = 0;  ///< of the job, all runs together
  std::uint64_t failures = 0;
  double prior_mtbf_s = 0;  ///< expected before anything was seen: a Gamma(1, prior) prior of the rate; at least 1
};

struct MtbfEstimate {
  std::optional<double> likeliest_s{};  ///< uptime / failures; nothing while none was seen
  double mean_s = 0;                    ///< 1 / the expected rate
  double low_s = 0;                     ///< of 90 %: plan with this one
  double high_s = 0;
};

/// The rate is Gamma(1 + failures, prior + uptime) afterwards; the interval is between its 5 % and 95 % quantiles.
MtbfEstimate estimate_mtbf(const FailureHistory& history);

/// The MTBF at the `p` quantile of the uncertainty that the history leaves, 0 < p < 1.
double mtbf_quantile(const FailureHistory& history, double p);

/// P(a, x): the part of a Gamma(a, 1) variable below x. a > 0.
double gamma_below(double a, double x);
/// The x with gamma_below(a, x) = p, 0 < p < 1.
double gamma_quantile(double a, double p);

}  // namespace ckpt::catalog
