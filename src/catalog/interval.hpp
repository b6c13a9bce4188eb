#pragma once

#include <cstdint>
#include <string>

/// How often to save: the formulas. Times in seconds, as doubles; an argument that must be positive and is not gives 0.
///
/// T is the training time between two saves, from the end of one to the start of the next; a save stalls training for C
/// and is durable after D; M is the mean time between failures of the whole job; R is the time that a failure costs
/// before training continues: detect, restart, restore. Failures are exponential.
namespace ckpt::catalog {

struct Costs {
  double stall_s = 0;    ///< C: how long one save stalls training
  double drain_s = 0;    ///< D: from the start of a save until it is durable; at least C
  double restart_s = 0;  ///< R
  double mtbf_s = 0;     ///< M
};

double young(const Costs& costs);  ///< sqrt(2CM): Young, CACM 17(9), 1974
double daly(const Costs& costs);   ///< the higher-order estimate; M where C >= 2M: Daly, FGCS 22(3), 2006
/// The T that maximises `goodput`: the solution of T = M(1 - e^-((T+C)/M)). R plays no part in it.
double best_interval(const Costs& costs);

/// Useful work per wall time: T / (M e^(R/M) (e^((T+C)/M) - 1)): Daly 2006, exact for exponential failures. Under
/// asynchronous saves (D > C) the newest durable save is D - C older at a failure, which is lost as well: counted as
/// restart time.
double goodput(double interval_s, const Costs& costs);
/// Work lost at a failure: M - T/(e^(T/M) - 1), about T/2, and D - C.
double expected_loss(double interval_s, const Costs& costs);
double overhead(double interval_s, const Costs& costs);  ///< C/(T+C)

/// max(acceptable rework, 20 C, 1.1 D / in flight): which of them decides, and whether it fails its own aim.
struct BaseRule {
  double interval_s = 0;
  enum class Limit : std::uint8_t { rework, overhead, drain } limit = Limit::rework;
  bool rework_missed = false;     ///< more work can be lost than is acceptable
  bool saves_too_rarely = false;  ///< M < 200 C: best_interval is shorter and better
};
BaseRule base_rule(double acceptable_rework_s, const Costs& costs, std::uint64_t in_flight = 1);
const char* limit_name(BaseRule::Limit limit);  ///< "rework", "overhead cap", "drain"

/// Bytes a second that make a synchronous save of `bytes` meet the rework target: 20 B / rework.
double bandwidth_for(double bytes, double acceptable_rework_s);

/// Whole steps between saves: max(1, round(T / t)).
std::uint64_t aligned_steps(double interval_s, double step_s);

/// Two tiers: every save reaches tier 1, every k-th also tier 2.
struct TwoTiers {
  double interval_s = 0;    ///< of tier 1
  std::uint64_t every = 1;  ///< k: tier 2 takes every k-th
  double waste = 0;         ///< first order: (C1 + C2/k)/T1 + T1/2 (1/M1 + k/M2)
};

/// Two tiers, of which the far one is filled in the background from the near one: every k-th save, which takes
/// `drain_s` and stalls nothing, but must be over (with a tenth to spare) when the next one goes there. `lost` is the
/// part of failures that take the near tier along, 0 to 1.
struct DrainedTiers {
  Costs near{};        ///< mtbf_s: of all failures; drain_s: until it is durable in the near tier
  double drain_s = 0;  ///< from the near tier to the far one
  double lost = 0;
};
/// First order: C/T + (T/2 + D1 - C)(1-p)/M + (kT/2 + D2 + D1 - C)p/M + R/M; a failure that the near tier survives
/// costs half of T and the save that was not yet durable there, others half of kT and the drain.
double waste(const DrainedTiers& tiers, double interval_s, std::uint64_t every);
/// The least waste over T and k. No interval where something is not positive.
TwoTiers best_tiers(const DrainedTiers& tiers);

}  // namespace ckpt::catalog
