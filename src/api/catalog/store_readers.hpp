#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The readers of a store, by claims (engine/locks/claims.hpp); none where locks reach every host.
struct StoreReaders {
  std::uint64_t here = 0;            ///< claims of processes of this machine, since it was started
  std::uint64_t elsewhere = 0;       ///< on other hosts, not known to have ended
  std::uint64_t silent = 0;          ///< of `elsewhere`: silent since this host last looked
  std::vector<std::string> hosts{};  ///< of `elsewhere`, sorted
  std::string deleter{};             ///< the process that may delete: "host n17 pid 4211"; "": none
};

/// Looks and changes nothing.
/// errors  io: the claims cannot be listed
Result<StoreReaders> store_readers(Io& io, const std::string& store);

}  // namespace ckpt
