#include "engine/publish/move_checkpoint.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/io/replace_file.hpp"
#include "engine/locks/lease.hpp"

namespace ckpt {

namespace {

/// The lock alone.
Result<LockedCheckpoint> hold_lock(Io& io, const std::string& checkpoint) {
  auto lock = io.lock(checkpoint, LockMode::exclusive);
  if (lock) return LockedCheckpoint{.lock = *std::move(lock)};
  switch (lock.error().code) {
    case Errc::locked:
      return LockedCheckpoint{.outcome = LockOutcome::read};
    case Errc::unsupported:
      return LockedCheckpoint{.outcome = LockOutcome::unknown};
    case Errc::not_found:
      return LockedCheckpoint{.outcome = LockOutcome::vanished};
    default:
      return fail(std::move(lock).error());
  }
}

}  // namespace

Result<LockedCheckpoint> lock_checkpoint(Io& io, const std::string& checkpoint, const Formerly& formerly) {
  CKPT_TRY(LockedCheckpoint held, hold_lock(io, checkpoint));
  if (held.outcome == LockOutcome::read || held.outcome == LockOutcome::vanished) return held;
  const LockScope scope = io.lock_scope(checkpoint);
  if (scope.reach == LockReach::everyone) return held;
  for (const std::string& store : stores_above(io, scope.path)) {
    CKPT_TRY(auto keys, claim_keys(io, store, scope.path));
    if (!formerly.id.empty()) keys.push_back(formerly.id);
    if (!formerly.path.empty()) keys.push_back(place_key(store, io.lock_scope(formerly.path).path));
    held.claimed.push_back({.store = store, .keys = std::move(keys)});
  }
  if (held.claimed.empty()) {
    // Outside of stores there are no claims.
    if (scope.reach == LockReach::host) held.outcome = LockOutcome::unknown;
    return held;
  }
  held.outcome = LockOutcome::free;
  CKPT_CHECK(check_no_readers(io, held));
  return held;
}

Result<> check_no_readers(Io& io, LockedCheckpoint& held) {
  for (const LockedCheckpoint::Claimed& claimed : held.claimed) {
    CKPT_TRY(const Claims claims, watch_claims(io, claimed.store));
    if (const FoundClaim* reader = claims.holder(claimed.keys)) {
      held.outcome = LockOutcome::read;
      held.reader = reader->name.who();
    } else if (!claims.ready) {
      held.outcome = LockOutcome::unknown;
      held.reader = "locks do not reach every host, and readers have claims only since now: try again in 10 minutes";
    }
    if (held.outcome == LockOutcome::free) continue;
    held.lock.reset();
    return {};
  }
  return {};
}

Result<> move_checkpoint(Io& io, const std::string& from, const std::string& to) {
  CKPT_CHECK(rename_and_look(io, from, to, RenameMode::no_replace));
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
