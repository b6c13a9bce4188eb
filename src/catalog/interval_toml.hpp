#pragma once

#include <string>

#include "catalog/interval_policy.hpp"
#include "catalog/toml_table.hpp"

namespace ckpt::catalog {

/// Reads the [interval] table, or that of a [[rule]]: when to save. `name`: of it, for messages.
///
///   every_steps = 500        when a multiple is reached
///   every = "30m"            since the last save began
///   optimal = true           the interval that loses the least time; with mtbf = "234h" (else by the run's history),
///                            restart = "10m", min_interval, max_interval, hysteresis = 0.2
///   before_end = "5m"        durable this long before the job's time limit
///   max_overhead = "3%"      or 0.03: a cap over the rules above
///   on_signal = true         and at_start = false: step 0 as well
///
/// errors  usage, "FILE: line L column C: ...": an unknown key, a value that its key does not take, no rule at all
Result<IntervalRules> read_interval(const toml::table& source, const std::string& file,
                                    const std::string& name = "[interval]");

}  // namespace ckpt::catalog
