#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "catalog/bucket.hpp"

namespace ckpt::catalog {

/// In Checkpoint::trackers, what follows the name of one that may name it: an unreadable one, and a link.
inline constexpr std::string_view kCannotBeRead = " (cannot be read)";
inline constexpr std::string_view kCannotBeFollowed = " (cannot be followed)";

/// Whether a checkpoint is complete.
enum class State : std::uint8_t {
  uncommitted,  ///< a save is running or died: not a checkpoint
  unreadable,   ///< could not be read now; it may be readable later
  repairable,   ///< one of its manifest's two copies is lost or torn, the other is right: `ckpt repair` repairs it
  corrupt,      ///< its bytes contradict its sums
  committed,    ///< every byte durable, as its save said
  verified,     ///< and every digest was read again since
};

/// "never delete this", until a date or permanently: a pin or a hold.
struct Pin {
  std::string name{};
  std::string owner{};
  std::string reason{};
  std::optional<Time> until{};  ///< nothing = permanently
};

/// One checkpoint, as retention sees it: its manifest, its marks and its users.
struct Checkpoint {
  std::string id{};
  std::string run{};
  std::uint64_t series = 0;
  std::optional<std::uint64_t> series_from{};   ///< the step that its series began from; nothing: supersedes nothing
  std::optional<std::uint64_t> series_after{};  ///< the series that its series continues, if it is not the one before
  std::uint64_t generation = 0;                 ///< counts the commits of a run; 0 = unknown (foreign checkpoints)
  std::uint64_t step = 0;
  Time created{};  ///< by the saving machine's clock: informs, never orders
  /// When it came into the store, by the clock of its file system: of an import later than `created`. Where unknown the
  /// least.
  Time committed = Time::min();
  State state = State::committed;
  std::uint64_t bytes = 0;            ///< all of its files
  std::uint64_t optimizer_bytes = 0;  ///< of these: bytes that dropping the optimizer frees; 0 once dropped
  std::vector<std::pair<std::string, double>> metrics{};
  std::vector<std::string> tags{};
  std::vector<std::pair<std::string, std::string>> attributes{};  ///< names of kAttributes (filter.hpp)
  std::vector<Pin> pins{};
  std::vector<std::string> readers{};  ///< processes that use it now: "host n17 pid 4211 (convert)"
  std::vector<std::string>
      references{};  ///< checkpoints whose bytes are stored in this one: ids, or paths of virtual ones
  std::vector<std::string> trackers{};  ///< foreign files that name it: "latest"
  bool resume_source = false;           ///< of its run, a trainer has loaded it last
  /// It was restored from the trash: until then no policy deletes it.
  std::optional<Time> undeleted_until{};
  bool marks_unreadable = false;  ///< its marks cannot be read
  bool superseded = false;        ///< by a later series of its run; set where that was asked for, for state_word
  bool link = false;              ///< a symbolic link
  bool is_virtual = false;        ///< its tensors are in other checkpoints: it replaces none of them
  bool foreign = false;           ///< another tool's: the end of its save is not marked
  bool single_file = false;       ///< of another tool, and no directory: it has no marks and is never deleted
};

/// The word for its state in outputs, filters and scripts: "complete", "verified", "damaged", ... Another tool's is
/// "unverified" until `ckpt verify` has read it: nothing in its directory says that its save ended. "superseded" stands
/// for each of these three.
std::string_view state_word(const Checkpoint& checkpoint);

/// The value of a metric; null if it was not recorded.
const double* find_metric(const Checkpoint& checkpoint, const std::string& name);

/// The place in a group, oldest first: series, step, generation, id. Never a clock.
bool older(const Checkpoint& a, const Checkpoint& b);

/// Compares by the time of the commit: by generation, and where neither has one by series and step; ties by id, of which
/// it is a view.
using CommitOrder = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::string_view>;
CommitOrder commit_order(const Checkpoint& one);
bool committed_before(const Checkpoint& a, const Checkpoint& b);

}  // namespace ckpt::catalog
