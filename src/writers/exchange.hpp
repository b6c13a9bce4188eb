#pragma once

#include <chrono>
#include <cstdint>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "writers/divided_load.hpp"

namespace ckpt {

/// Gives every member of a group what the others have read of their common parts: after DividedLoad::prove was true,
/// and every rank has read its own. Collective over all ranks, those without a group too.
///
/// In round k a rank sends to the one k after it and receives from the one k before it, so that nobody waits in a
/// circle and no rank is written to by all others at once. Ranks that are slow are waited for; where one is gone, or
/// nothing moves on any rank, all learn it within their patience.
///
/// returns  nanoseconds until this rank had sent and received everything
/// errors   peer_failed: the ranks are lost
Result<std::uint64_t> exchange(Comm& comm, std::chrono::milliseconds patience, const DividedLoad& load);

/// What the ranks measured in a load that was divided; the maximum of each over all of them.
struct ExchangeCost {
  std::uint64_t read_ns_a_mib = 0;  ///< of what a rank read; 0: too little to tell
  std::uint64_t received_bytes = 0;
  std::uint64_t exchange_ns = 0;
};
/// Whether the slowest rank would have read what it received in less time. No where that cannot be told.
bool reading_is_faster(const ExchangeCost& cost);

}  // namespace ckpt
