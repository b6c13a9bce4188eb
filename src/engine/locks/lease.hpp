#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/locks/claims.hpp"
#include "engine/store/foreign_names.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A reader's lease on a checkpoint (directory or file). While it is held, no process deletes, demotes or replaces
/// the checkpoint, or the checkpoint that it is part of. It is a shared lock and, where locks do not reach every
/// host, a claim in each store that contains it (claims.hpp), kept alive by Io::beat. A claim that rests for
/// longer than kClaimSilence no longer protects from other hosts. Used by one thread, that of `io`, which outlives
/// it.
class Lease final : public HeartbeatClient {
 public:
  /// `names`: of other tools' checkpoints, which it may be part of.
  /// errors   locked: it is being replaced or deleted; not_found: no longer exists; io
  static Result<std::unique_ptr<Lease>> take(Io& io, const std::string& checkpoint, const ForeignNames& names);
  ~Lease() override;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  void beat() override;
  /// Why a deleter on another host, or of an enclosing checkpoint, cannot see this lease; empty if it can, or if there
  /// is no store.
  const std::string& claim_warning() const { return lock_warning_.empty() ? claim_warning_ : lock_warning_; }
  const std::vector<std::unique_ptr<ClaimFile>>& claims() const { return claims_; }

 private:
  Lease(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Result<> hold_around(const ForeignNames& names);
  void claim();
  Result<> look_again(const FileInfo& before);

  Io& io_;
  std::string path_;  // as deletions see it
  std::unique_ptr<HeldLock> lock_;
  std::vector<std::string> around_;  // checkpoints that it is a part of, innermost first
  std::vector<std::unique_ptr<HeldLock>> locks_around_;
  std::vector<std::unique_ptr<ClaimFile>> claims_;
  std::string lock_warning_;   // why one of them has no lock
  std::string claim_warning_;  // why there is no claim
  bool seeking_ = false;       // a store that does not exist yet may be created
  std::chrono::nanoseconds last_{};
};

/// Directories above a path whose names are those of checkpoints, ours or another tool's, innermost first: what is at
/// the path is deleted with them. Runs with such names are not included.
std::vector<std::string> checkpoints_around(Io& io, const std::string& path, const ForeignNames& names);

/// The keys under which readers claim the checkpoint at `path`.
/// errors  io: unknown
Result<std::vector<std::string>> claim_keys(Io& io, const std::string& store, const std::string& path);

}  // namespace ckpt
