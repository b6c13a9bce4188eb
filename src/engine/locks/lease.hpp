#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/locks/claims.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A reader's hold on a checkpoint (directory or file): nobody deletes, demotes or replaces it in the meantime, nor the
/// checkpoint that it is a part of. A shared
/// lock, and where locks do not reach every host a claim in each store that it lies in (claims.hpp), which long work
/// keeps alive by Io::beat. A claim of work that rests for longer than kClaimSilence protects from other hosts no more.
/// One thread, that of `io`, which outlives it.
class Lease final : public Attended {
 public:
  /// errors   locked: it is being replaced or deleted; not_found: no longer exists; io
  static Result<std::unique_ptr<Lease>> take(Io& io, const std::string& checkpoint);
  ~Lease() override;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  void beat() override;
  /// Why whoever deletes, on another host or what this is a part of, cannot know of this; empty: he can, or there is
  /// no store whose he could be.
  const std::string& unheard() const { return not_held_.empty() ? unheard_ : not_held_; }
  const std::vector<std::unique_ptr<ClaimFile>>& claims() const { return claims_; }

 private:
  Lease(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Result<> hold_around();
  void claim();
  Result<> look_again(const FileInfo& before);

  Io& io_;
  std::string path_;  // as whoever deletes sees it
  std::unique_ptr<HeldLock> lock_;
  std::vector<std::string> around_;  // checkpoints that it is a part of, innermost first
  std::vector<std::unique_ptr<HeldLock>> locks_around_;
  std::vector<std::unique_ptr<ClaimFile>> claims_;
  std::string not_held_;  // why one of them has no lock
  std::string unheard_;   // why there is no claim
  bool seeking_ = false;  // a store that is not there yet may come to be
  std::chrono::nanoseconds last_{};
};

/// The keys that readers of a checkpoint have claimed it by, as it stands at `path`.
/// errors  io: nobody knows
Result<std::vector<std::string>> claim_keys(Io& io, const std::string& store, const std::string& path);

}  // namespace ckpt
