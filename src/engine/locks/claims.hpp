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

/// Claim files in STORE/.ckpt/claims announce readers where locks do not reach every host. Readers and deleters follow
/// this order; each step is complete on the server before the next begins:
///   reader   1 get the id from the manifest   2 create a claim with that id   3 check that the checkpoint still has
///            its name   4 read, and increment the claim's counter from time to time   5 remove the claim
///   deleter  1 check the claims: if one is live, stop   2 rename into the trash   3 check the claims: if one is live,
///            rename back   4 much later: check again, then remove the files
/// A claim made before the deleter's third step is seen there. A later one belongs to a reader whose third step finds
/// the name gone. If that reader's system caches the old name, the reader reads in the trash, which the fourth step
/// still protects. No process waits for another. Only a reader that starts while the files are being removed finds
/// them gone, which is an error and not wrong bytes.
///   check    1 create and remove a file there: this invalidates the system's cache of the directory
///            2 list it   3 read each claim's counter
/// A claim is dead if its process is known to have ended (same boot and PID namespace), or if its counter was seen
/// unchanged for kClaimSilence of the observer's monotonic time, by one process or by several of the same boot:
/// observations are stored in `seen-CLOCK`. Clocks of two hosts are never compared. Readers that started before the
/// directory for claims existed made none; they look for it at every beat, so once it has been watched for
/// kClaimSilence, which `ready` records, all have one.
namespace ckpt {

constexpr std::string_view kClaimsDirectory = "claims";
constexpr auto kClaimBeat = std::chrono::minutes(1);
constexpr auto kClaimSilence = std::chrono::minutes(10);

/// STORE/.ckpt/claims
std::string claims_path(std::string_view store);

/// The directories above an absolute path that are stores, innermost first.
std::vector<std::string> stores_above(Io& io, const std::string& path);

/// The key of a checkpoint without an id: its place in the store.
std::string place_key(std::string_view store, std::string_view path);

/// The key of the turn to delete in a store; no reader uses it.
std::string turn_key(std::string_view store);

/// One's own claim; removed by the destructor. One thread, that of `io`, which outlives it.
class ClaimFile final : public HeartbeatClient {
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
    lives,   ///< its process runs, its counter was incremented, or unknown
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
/// Reads the claims, stores the observations, and removes dead claims.
/// errors  those of files; nothing is known then
Result<Claims> watch_claims(Io& io, const std::string& store, Dead dead = Dead::removed);

/// Looks and changes nothing. No directory: no claims.
Result<Claims> list_claims(Io& io, const std::string& store);

/// How long a partial (publish.hpp) in this store has been seen unchanged: names, sizes and times of everything in it.
/// A process that writes it changes something within that time. Stored as above; 0 at the first observation.
/// errors  those of files
Result<std::chrono::nanoseconds> watch_partial(Io& io, const std::string& store, const std::string& path);

}  // namespace ckpt
