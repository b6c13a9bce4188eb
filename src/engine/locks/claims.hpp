#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/locks/claim_name.hpp"
#include "format/result.hpp"

/// Claim files in STORE/.ckpt/claims: who reads what, where locks do not reach every host. Who reads and who deletes
/// keep this order, each step done on the server before the next begins:
///   reader   1 the id, from the manifest   2 a claim with that id   3 a look that the checkpoint still has its name
///            4 reading; the claim's counter is raised as it goes on   5 the claim is removed
///   deleter  1 a look at the claims: one lives, and nothing is touched   2 the rename into the trash
///            3 a look at the claims: one lives, and it is renamed back   4 much later: a look, then it is removed
/// A claim that stood before the deleter's third step is seen there. One that came after belongs to a reader whose
/// third step finds the name gone; where his system remembers the name for longer than it is, he reads in the trash
/// what the fourth step still protects. Nobody waits for anybody, and only a reader that began while the files were
/// being removed permanently finds them gone, which is an error and not other bytes.
///   look     1 a file made and removed there: the answer to one's own change ends what one's system remembers of the
///            directory   2 the listing   3 each claim's counter
/// A claim is dead when its process is known to be (same boot and PID namespace), or when its counter was seen
/// unchanged for kClaimSilence of the looker's own monotonic time, by one process or by several of the same boot: what
/// is seen is remembered in `seen-CLOCK`. Clocks of two hosts are never compared. Readers that began before there was a
/// directory for claims made none; they look for one at every beat, so once it has been watched for kClaimSilence,
/// which `ready` then says, all have.
namespace ckpt {

constexpr std::string_view kClaimsDirectory = "claims";
constexpr auto kClaimBeat = std::chrono::minutes(1);
constexpr auto kClaimSilence = std::chrono::minutes(10);

/// STORE/.ckpt/claims
std::string claims_path(std::string_view store);

/// The directories above an absolute path that are stores, innermost first.
std::vector<std::string> stores_above(Io& io, const std::string& path);

/// What stands for a checkpoint without an id: where it is in its store.
std::string place_key(std::string_view store, std::string_view path);

/// What stands for the turn to delete in a store: a claim with this key is no reader's.
std::string turn_key(std::string_view store);

/// One's own claim; removed by the destructor. One thread, that of `io`, which outlives it.
class ClaimFile final : public Attended {
 public:
  /// Durable when this returns.
  /// errors  as of files: the store cannot be written
  static Result<std::unique_ptr<ClaimFile>> write(Io& io, const std::string& store, const std::string& key);
  ~ClaimFile() override;
  ClaimFile(const ClaimFile&) = delete;
  ClaimFile& operator=(const ClaimFile&) = delete;
  /// Raises the counter, at most once a kClaimBeat; one that was removed in the meantime is made again.
  void beat() override;
  const std::string& path() const { return path_; }

 private:
  ClaimFile(Io& io, std::string path) : io_(io), path_(std::move(path)) {}

  Io& io_;
  std::string path_;
  std::uint64_t counter_ = 0;
  std::chrono::nanoseconds last_{};
};

struct FoundClaim {
  std::string path{};
  ClaimName name{};
  enum class State : std::uint8_t {
    lives,   ///< its process runs, or its counter was raised, or nobody knows
    silent,  ///< its counter has not been seen to rise, for less than kClaimSilence
    dead,
  } state = State::lives;
  std::chrono::nanoseconds watched{};  ///< for how long its counter has been seen unchanged
};

struct Claims {
  bool ready = false;  ///< every reader on any host has a claim here
  std::vector<FoundClaim> found{};
  std::uint64_t removed = 0;  ///< dead ones

  /// The first that is not known to be dead and has one of these keys; null: none.
  const FoundClaim* holder(const std::vector<std::string>& keys, std::string_view but = {}) const;
};

enum class Dead : std::uint8_t { removed, left };
/// Looks, remembers what was seen, and removes the dead.
/// errors  as of files: nothing is known
Result<Claims> watch_claims(Io& io, const std::string& store, Dead dead = Dead::removed);

/// Looks and changes nothing. No directory: no claims.
Result<Claims> list_claims(Io& io, const std::string& store);

/// For how long a partial (publish.hpp) in this store has been seen as it is, names, sizes and times of all that is in
/// it: no process writes one that long without a change. Remembered as above; 0 at the first look.
/// errors  as of files
Result<std::chrono::nanoseconds> watch_partial(Io& io, const std::string& store, const std::string& path);

}  // namespace ckpt
