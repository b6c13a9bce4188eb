#pragma once

#include <string>
#include <vector>

#include "api/catalog/named_checkpoint.hpp"
#include "api/run/save_plan.hpp"
#include "api/verbs.hpp"

/// A plan for an existing checkpoint or run: `ckpt plan CKPT`.
namespace ckpt {

struct PlanSource {
  std::string path{};
  std::vector<std::string> notes{};  ///< values taken from it, for people
};

/// Fills in the open values of the request: bytes and parameters from the headers of a checkpoint of any format; for
/// RUN@STEP in a store, also bandwidth and stall of that run's saves, the time of a step, and the failure rate from the
/// store's interval rules, else from the restarts that its checkpoints show: the 10 % quantile is used
/// (run_history.hpp).
///
/// errors  of inspect and find_by_name; usage: no parameters found
Result<PlanSource> take_from(Session& session, const NamedCheckpoint& checkpoint, SavePlanRequest& request);

}  // namespace ckpt
