#include "engine/move_checkpoint.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/left_over.hpp"

namespace ckpt {

Result<Held> hold(Io& io, const std::string& checkpoint) {
  auto lock = io.lock(checkpoint, LockMode::exclusive);
  if (lock) return Held{.lock = *std::move(lock)};
  switch (lock.error().code) {
    case Errc::locked:
      return Held{.claim = Claim::read};
    case Errc::unsupported:
      return Held{.claim = Claim::unknown};
    case Errc::not_found:
      return Held{.claim = Claim::vanished};
    default:
      return fail(std::move(lock).error());
  }
}

Result<> move_checkpoint(Io& io, const std::string& from, const std::string& to) {
  auto renamed = io.rename(from, to, RenameMode::no_replace);
  if (!renamed) {
    if (renamed.error().code == Errc::target_exists || renamed.error().code == Errc::not_found) return renamed;
    // A network's answer may be lost after the deed: what stands there now decides.
    const auto here = look(io, from);
    const auto there = look(io, to);
    if (!here || !there || *here || !*there) return renamed;
  }
  // The new name first: after a crash between the two it may have both names, never none.
  auto synced = io.sync_dir(parent_path(to));
  if (synced) synced = io.sync_dir(parent_path(from));
  if (synced) return {};
  Error error = std::move(synced).error();
  error.code = Errc::not_durable;
  error.message = fmt::format("{}: move to {}: done, perhaps not durable: {}", from, to, error.message);
  return fail(std::move(error));
}

}  // namespace ckpt
