#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/index/entry.hpp"

/// `ckpt verify --all`: the verify of one checkpoint for many of a store, what was never or longest ago looked at
/// first, so that a run of a share of them every night comes by each. What was found is said in the checkpoint itself,
/// by a mark.
namespace ckpt {

struct ScrubRequest {
  std::string store;
  std::vector<std::string> runs{};             ///< globs; empty = all
  std::optional<catalog::Time> since{};        ///< saved then or later
  std::optional<catalog::Duration> max_age{};  ///< only what was not looked at within this time
  double share = 1;                            ///< of the checkpoints of these runs: 0 < share <= 1; at least one
  bool quick = false;                          ///< structure and sizes only: nothing is recorded
  bool finite = false;                         ///< also look for NaNs and infinities
  std::string by{};                            ///< "ana@n17 pid 4211"
  std::function<catalog::Time()> clock{};      ///< by the machine's clock
};

enum class ScrubVerdict : std::uint8_t {
  intact,
  damaged,     ///< its bytes are not those that were saved
  incomplete,  ///< files are missing
  unread,      ///< the system, or a bound, stood in the way: that says nothing about the checkpoint
  busy,        ///< another process deletes or replaces it
  vanished,    ///< it was deleted in the meantime
};
const char* verdict_name(ScrubVerdict verdict);  ///< "intact"

/// One checkpoint of a scrub.
struct ScrubItem {
  catalog::Entry entry{};  ///< as it was before
  std::string path{};
  ScrubVerdict verdict = ScrubVerdict::unread;
  std::optional<VerifyReport> report{};   ///< of intact and damaged
  std::optional<Error> error{};           ///< of the others
  std::optional<catalog::Time> before{};  ///< when it was looked at the last time
  bool recorded = false;                  ///< a mark says so now
  std::string unrecorded_because{};       ///< where there should be one
};

struct ScrubReport {
  std::vector<ScrubItem> items{};  ///< in the order in which they were looked at
  std::uint64_t total = 0;         ///< checkpoints of the runs, saved since
  std::uint64_t due = 0;           ///< of these by max_age
  std::uint64_t bytes = 0;         ///< read and checked
  double seconds = 0;
  std::vector<std::string> warnings{};
  std::uint64_t count(ScrubVerdict verdict) const;
};

/// Goes on after what is damaged or cannot be read. While it looks at a checkpoint, and until the mark is durable, it
/// holds the lease of a reader. A mark `verified` is written after every checksum was compared and only then: 1, or 0
/// and what is damaged. Of a checkpoint without checksums a note is written, so that its turn passes. `each` (may be
/// empty) is told of every one at once.
///
/// errors   not_found: the store, or a run that no checkpoint belongs to; those of the catalog; interrupted: what was
///          recorded until then stays
Result<ScrubReport> scrub(Session& session, const ScrubRequest& request,
                          const std::function<void(const ScrubItem&)>& each);

/// When a scrub last looked at it: what its marks say. Nothing: never.
std::optional<catalog::Time> last_scrub(const catalog::Entry& entry);

}  // namespace ckpt
