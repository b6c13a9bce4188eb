#pragma once

#include <string>
#include <vector>

#include "api/catalog/named_checkpoint.hpp"
#include "api/run/save_plan.hpp"
#include "api/verbs.hpp"

/// A plan for what is there already: `ckpt plan CKPT`.
namespace ckpt {

struct PlanSource {
  std::string path{};
  std::vector<std::string> notes{};  ///< what was taken from it, for people
};

/// Fills in what the request leaves open: bytes and parameters from the headers of a checkpoint of any format; where it
/// is named RUN@STEP in a store, also the bandwidth and the stall of that run's saves, the time of a step, and the
/// failure rate by what the store's rules of its interval say, else by the restarts that its checkpoints tell of: the
/// 10 % quantile is planned with (run_history.hpp).
///
/// errors  of inspect and find_by_name; usage: no parameters found
Result<PlanSource> take_from(Session& session, const NamedCheckpoint& checkpoint, SavePlanRequest& request);

}  // namespace ckpt
