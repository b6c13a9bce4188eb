#pragma once

#include <chrono>
#include <cstdint>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "loading/divided_load.hpp"

namespace ckpt {

/// Gives every member of a group the parts that the others have read: after DividedLoad::prove was true, and every rank
/// has read its own. Collective over all ranks, those without a group too.
///
/// In round k a rank sends to the k-th rank after it and receives from the k-th before it, which avoids deadlock and
/// keeps all ranks from writing to one at once. Slow ranks are waited for; if one is lost, or nothing moves on any
/// rank, all ranks learn it within their patience.
///
/// returns  nanoseconds until this rank had sent and received everything
/// errors   peer_failed: the ranks are lost
Result<std::uint64_t> exchange(Comm& comm, std::chrono::milliseconds patience, const DividedLoad& load);

/// Measurements of a divided load; the maximum of each over all ranks.
struct ExchangeCost {
  std::uint64_t read_ns_a_mib = 0;  ///< of the data that a rank read; 0: too little to measure
  std::uint64_t received_bytes = 0;
  std::uint64_t exchange_ns = 0;
};
/// Whether the slowest rank would have read its received data in less time. No if that is unknown.
bool reading_is_faster(const ExchangeCost& cost);

}  // namespace ckpt
