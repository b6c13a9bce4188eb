#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/scan/entry.hpp"

/// `ckpt verify --all`: verifies the checkpoints of a store, never and least recently verified
/// first, so that a share every night reaches each. The result is stored in the checkpoint, as a
/// mark.
namespace ckpt {

struct ScrubRequest {
  std::string store;
  std::vector<std::string> runs{};             ///< globs; empty = all
  std::optional<catalog::Time> since{};        ///< saved then or later
  std::optional<catalog::Duration> max_age{};  ///< only checkpoints not verified within this time
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
  unread,      ///< the system, or a limit, prevented it: that says nothing about the checkpoint
  busy,        ///< another process deletes or replaces it
  vanished,    ///< it was deleted in the meantime
};
const char* verdict_name(ScrubVerdict verdict);  ///< "intact"

/// One checkpoint of a scrub.
struct ScrubItem {
  catalog::Entry entry{};  ///< unchanged
  std::string label{};     ///< its name in outputs: catalog::ShortNames
  std::string path{};
  ScrubVerdict verdict = ScrubVerdict::unread;
  std::optional<VerifyReport> report{};   ///< of intact and damaged
  std::optional<Error> error{};           ///< of the others
  std::optional<catalog::Time> before{};  ///< when it was last verified
  bool recorded = false;                  ///< a mark records it now
  std::string unrecorded_because{};       ///< if there should be one
};

struct ScrubReport {
  std::vector<ScrubItem> items{};  ///< in the order of verification
  std::uint64_t total = 0;         ///< checkpoints of the runs, saved since
  std::uint64_t due = 0;           ///< of these by max_age
  std::uint64_t bytes = 0;         ///< read and checked
  double seconds = 0;
  std::vector<std::string> warnings{};
  bool saw_all = true;  ///< false: a run could not be read, and its checkpoints are not among these
  std::uint64_t count(ScrubVerdict verdict) const;
  std::uint64_t checked() const;  ///< with a verdict about the checkpoint
};

/// Continues after damaged or unreadable checkpoints. It holds a reader's lease while it
/// verifies a checkpoint and until the mark is durable. A mark `verified` is written only
/// after every checksum was compared: 1, or 0 and the damage. A checkpoint without checksums
/// gets a note, so that its turn passes. `each` (may be empty) is called for every result at
/// once.
///
/// errors   not_found: the store, or a run without checkpoints; those of the catalog; interrupted: earlier results stay
Result<ScrubReport> scrub(Session& session, const ScrubRequest& request,
                          const std::function<void(const ScrubItem&)>& each);

/// Verifies one checkpoint, as `verify`. If it is in a store or has marks, and no other is compared with it, the result
/// is recorded there as by `scrub`; that it cannot be is a note in the report. That another tool's is intact is
/// recorded only if it has marks. Not collective.
/// errors  as verify
Result<VerifyReport> verify_recorded(Session& session, const VerifyRequest& request, const std::string& by,
                                     const std::function<catalog::Time()>& clock);

/// When it was last verified, by its marks. Nothing: never.
std::optional<catalog::Time> last_scrub(const catalog::Entry& entry);

}  // namespace ckpt
