#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/prune_policies.hpp"
#include "catalog/simulate.hpp"

namespace ckpt {

struct SimulateRequest {
  std::string store;
  PolicyWords policy{};
  std::uint64_t interval = 0;  ///< steps between saves
  std::uint64_t until = 0;     ///< the last step
  catalog::Duration step_time = std::chrono::seconds(1);
  std::optional<std::uint64_t> bytes{};  ///< of one checkpoint, six sevenths of it the optimizer's
  catalog::Time now{};
};

struct SimulatedPolicy {
  catalog::Policy policy{};  ///< without `recycle` if the store's file system does not benefit from it
  catalog::Schedule schedule{};
  std::string like{};  ///< the checkpoint whose sizes are used; "" if they were given
  catalog::Simulation outcome{};
};

struct SimulateReport {
  std::string store;
  std::string source{};  ///< of the policies
  std::vector<SimulatedPolicy> policies{};
  std::vector<std::string> differences{};
  std::vector<std::string> warnings{};
};

/// Applies each policy to a simulated run that saves at every interval. Without `bytes` checkpoints are as large as the
/// last one saved of the policy's runs. Changes nothing but the catalog.
/// errors  of read_policies and simulate; usage: no size is given, and there is no checkpoint to take it from
Result<SimulateReport> simulate_prune(Io& io, const SimulateRequest& request);

}  // namespace ckpt
