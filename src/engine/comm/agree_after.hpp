#pragma once

#include <chrono>
#include <functional>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Collective: runs `work`, which may take as long as the disk needs, and ends with one verdict, as `agree` does. The
/// work runs in a separate thread while this one keeps up the heartbeat, so that a rank with a stalled disk is not
/// considered lost. `work` must not use Comm; exceptions that it throws become failures. An
/// empty `work` needs no thread: this rank has nothing to do and waits for the others.
///
/// patience  a rank that takes longer to join a beat is lost
/// errors    those of `work`, on any rank; peer_failed
Result<> agree_after(Comm& comm, std::chrono::milliseconds patience, const std::function<Result<>()>& work);

}  // namespace ckpt
