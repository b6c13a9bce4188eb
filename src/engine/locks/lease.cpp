#include "engine/locks/lease.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "engine/io/real_path.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt {
namespace {

/// A name that no longer exists may come back: the process that moved it checks the claims and sees this one.
constexpr auto kReturnPatience = std::chrono::seconds(2);
constexpr auto kReturnPoll = std::chrono::milliseconds(20);
constexpr unsigned kDeepestPart = 4;  // depth of a part below its checkpoint, in directories

}  // namespace

std::vector<std::string> checkpoints_around(Io& io, const std::string& path, const ForeignNames& names) {
  std::vector<std::string> out;
  std::string at = parent_path(real_path(path).value_or(path));
  for (unsigned depth = 0; depth < kDeepestPart && parent_path(at) != at; ++depth, at = parent_path(at)) {
    const std::string name = base_name(at);
    if (CheckpointName::parse(name)) {
      out.push_back(at);
    } else if (names.step_in(name)) {
      const auto ours = list_checkpoints(io, at);
      if (!ours || ours->empty()) out.push_back(at);  // one that cannot be listed may be either
    }
  }
  return out;
}

Result<std::vector<std::string>> claim_keys(Io& io, const std::string& store, const std::string& path) {
  std::vector<std::string> out;
  const auto manifest = read_manifest(io, path);
  if (manifest) {
    out.push_back(manifest->id.hex());
  } else if (manifest.error().code == Errc::io) {
    return fail(manifest.error());
  }
  out.push_back(place_key(store, path));
  return out;
}

Result<std::unique_ptr<Lease>> Lease::take(Io& io, const std::string& checkpoint, const ForeignNames& names) {
  auto lock = io.lock(checkpoint, LockMode::shared);
  if (!lock && lock.error().code != Errc::unsupported) return fail(std::move(lock).error());
  std::unique_ptr<Lease> out(new Lease(io, checkpoint));
  if (lock) out->lock_ = *std::move(lock);
  CKPT_CHECK(out->hold_around(names));
  LockScope scope = io.lock_scope(checkpoint);
  if (scope.reach == LockReach::everyone) return out;
  out->path_ = std::move(scope.path);
  CKPT_TRY(const FileInfo before, io.stat(out->path_));
  out->claim();
  if (!out->claims_.empty()) CKPT_CHECK(out->look_again(before));
  io.add_heartbeat(*out);
  out->seeking_ = out->claims_.empty();
  out->last_ = io.host().monotonic();
  return out;
}

Lease::~Lease() {
  // A lease that is only a lock never used its Io, which may no longer exist.
  if (last_ != std::chrono::nanoseconds::zero()) io_.remove_heartbeat(*this);
}

void Lease::claim() {
  std::vector<std::string> parts{path_};
  parts.insert(parts.end(), around_.begin(), around_.end());
  for (const std::string& part : parts) {
    const auto manifest = read_manifest(io_, part);
    for (const std::string& store : stores_above(io_, part)) {
      auto written = ClaimFile::write(io_, store, manifest ? manifest->id.hex() : place_key(store, part));
      if (written) {
        claims_.push_back(*std::move(written));
      } else {
        claim_warning_ = fmt::format("locks here do not reach every host, and the claim cannot be written: {}",
                                     written.error().message);
      }
    }
  }
}

/// A part is deleted with its checkpoint, under the lock of that.
Result<> Lease::hold_around(const ForeignNames& names) {
  around_ = checkpoints_around(io_, path_, names);
  if (around_.empty()) return {};
  CKPT_TRY(const FileInfo before, io_.stat(path_));
  for (const std::string& path : around_) {
    auto lock = io_.lock(path, LockMode::shared);
    const Errc code = lock ? Errc::unsupported : lock.error().code;
    if (lock) {
      locks_around_.push_back(*std::move(lock));
    } else if (code == Errc::locked || code == Errc::not_found) {
      return fail(std::move(lock).error());
    } else if (code != Errc::unsupported) {
      lock_warning_ = fmt::format("{} is part of {}, which cannot be locked, so it may be deleted meanwhile: {}", path_,
                                  path, lock.error().message);
    }
  }
  // One of them may have been replaced before it was locked; then the first lock is on the old one.
  return look_again(before);
}

Result<> Lease::look_again(const FileInfo& before) {
  const auto patience = std::chrono::steady_clock::now() + kReturnPatience;
  for (;;) {
    CKPT_TRY(const auto now, stat_if_present(io_, path_));
    if (now && now->is_same_file(before)) return {};
    if (std::chrono::steady_clock::now() >= patience) {
      return fail({.code = now ? Errc::locked : Errc::not_found,
                   .message = path_ + (now ? ": it was just replaced" : ": it was just deleted"),
                   .file = path_});
    }
    std::this_thread::sleep_for(kReturnPoll);
  }
}

void Lease::beat() {
  const auto now = io_.host().monotonic();
  if (!seeking_ || now - last_ < kClaimBeat) return;
  last_ = now;
  claim_warning_.clear();
  claim();
  seeking_ = claims_.empty();
}

}  // namespace ckpt
