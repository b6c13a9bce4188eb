#pragma once

#include <chrono>
#include <functional>

#include "engine/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Collective: carries out what this rank has to do, for as long as its disk takes, and ends with one verdict, as
/// `agree` does. The work is done in a thread of its own; this one keeps up the heartbeat meanwhile, so that a rank
/// whose disk stalls is not taken for lost. `work` uses no Comm; what it throws is a failure.
///
/// patience  a rank that takes longer to join a beat is lost
/// errors    those of `work`, of any rank; peer_failed
Result<> agree_after(Comm& comm, std::chrono::milliseconds patience, const std::function<Result<>()>& work);

}  // namespace ckpt
