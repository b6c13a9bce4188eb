#include "api/catalog/store_readers.hpp"

#include <algorithm>

#include "engine/locks/claims.hpp"

namespace ckpt {

Result<StoreReaders> store_readers(Io& io, const std::string& store) {
  CKPT_TRY(const Claims claims, list_claims(io, store));
  const std::string boot = io.host().self().boot;
  StoreReaders out;
  for (const FoundClaim& claim : claims.found) {
    if (claim.state == FoundClaim::State::dead) continue;
    if (claim.name.key == turn_key(store)) {
      out.deleter = claim.name.who();
      continue;
    }
    if (!boot.empty() && claim.name.maker.boot == boot) {
      ++out.here;
      continue;
    }
    ++out.elsewhere;
    if (claim.state == FoundClaim::State::silent) ++out.silent;
    out.hosts.push_back(claim.name.maker.host);
  }
  std::ranges::sort(out.hosts);
  out.hosts.erase(std::unique(out.hosts.begin(), out.hosts.end()), out.hosts.end());
  return out;
}

}  // namespace ckpt
