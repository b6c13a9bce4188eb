#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "catalog/checkpoint.hpp"
#include "catalog/policy.hpp"

/// Which checkpoints to keep, and why: committed - kept by a rule - guarded. Pure; nothing is deleted here.
///
/// The floor, which no policy can switch off. Never deleted are:
///  1 the newest verified checkpoint of a group, or the newest if none is verified (of superseded ones, where a
///    group has no others; and where nothing good is left, of corrupt ones)
///  2 one that is read, loaded, converted or saved now
///  3 a pinned one, until the pin's date
///  4 one that other checkpoints refer to; and a virtual one, which refers to others. It frees next to nothing, counts
///    for no rule, and replaces no checkpoint that has its bytes
///  5 one that a foreign tracker file names
///  6 one that could not be read just now, or its marks; one that `ckpt repair` can repair
///  7 an uncommitted one (repair sweeps those), another tool's that was written a short time ago, and symbolic
///    links
///  8 corrupt ones, unless asked for by name (include_damaged)
///  9 superseded ones before their grace has passed, and the last verified one of a superseded series unless asked for
/// 10 one that was restored from the trash, before its new grace has passed
/// An empty policy deletes nothing. The first run of a new or changed policy deletes at most half, unless that was
/// approved.
/// Nothing that a guard or the floor protects is demoted either.
namespace ckpt::catalog {

/// A series known to the catalog, of which no checkpoint may be left.
struct SeriesBirth {
  std::string run{};
  std::uint64_t series = 0;
  std::optional<std::uint64_t> from{};
  std::optional<std::uint64_t> after{};
  Time began{};
};

/// The volume of a store.
struct Space {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t trash_bytes = 0;  ///< already in the trash, or in recycle/: will be free when space is short
};

/// The inputs of a decision, besides the checkpoints and the policy.
struct Situation {
  Time now{};
  std::optional<Space> space{};  ///< without it pressure knows only max_size in bytes
  std::vector<SeriesBirth> births{};
  bool first_run = false;  ///< of a new or changed policy (fingerprint)
  bool approved = false;   ///< -y
  bool include_damaged = false;
  std::vector<std::uint64_t> drop_series{};  ///< series numbers whose last verified checkpoint may go
  /// By index: a person named these for deletion, and all others stay. No rule is asked; guards and the floor hold, but
  /// for 9 and 10. Empty: the policy decides.
  std::vector<bool> chosen{};
};

enum class Action : std::uint8_t {
  keep,
  demote,  ///< keep the weights, drop the optimizer
  trash,
  skip,   ///< not a checkpoint
  block,  ///< a person must decide
};

struct Reason {
  enum class Cause : std::uint8_t {
    rule,  ///< `rule` keeps it, or in near_misses: would not; with `rank`, `value`, `other` of Verdict
    newest,
    newest_verified,  ///< `rank`
    resume_source,
    min_age,
    min_keep,
    no_verified_successor,
    floor_newest,  ///< guard 1, if the policy has disabled its own
    being_read,
    pinned,
    referenced,
    tracked,
    unfinished,  ///< another tool's, written `value` ms ago
    unreadable,
    repairable,
    marks_unreadable,
    uncommitted,
    link,
    single_file,
    is_virtual,
    corrupt,
    superseded_grace,  ///< `value`: ms left
    last_of_series,
    superseded,     ///< of trash: no rule counts it
    corrupt_goes,   ///< of trash: it was asked for (include_damaged)
    undeleted,      ///< restored from the trash; `value`: ms of its new grace left
    chosen,         ///< of trash: a person named it
    not_chosen,     ///< a person named others
    relaxed,        ///< of trash: `rule` would have kept it, but space is short
    old_optimizer,  ///< of demote: `value`: its age, ms
  } cause = Cause::rule;
  std::uint8_t verdict = 0;  ///< Verdict::Kind of a rule
  std::uint16_t rule = 0;    ///< index of Policy::keep
  std::uint32_t other = UINT32_MAX;
  std::uint64_t rank = 0;
  std::int64_t value = 0;
};

struct Decision {
  Action action = Action::keep;
  bool would_be_trash = false;  ///< only the floor or a guard keeps it
  bool superseded = false;      ///< no rule but tags counts it
  std::uint64_t bytes_freed = 0;
  std::vector<Reason> reasons{};      ///< rules and guards; of trash: why besides no rule keeping it
  std::vector<Reason> blockers{};     ///< of the floor
  std::vector<Reason> near_misses{};  ///< of checkpoints that no rule keeps: each rule's reason
};

/// Whether only rules keep it whose metric no checkpoint has, so that they keep all.
bool is_kept_unmeasured(const Decision& decision);

struct Retention {
  std::vector<Decision> decisions{};   ///< one per checkpoint, in the given order
  std::vector<std::uint32_t> order{};  ///< indices by group, newest first: the order of display and execution
  std::uint64_t trash_count = 0;
  std::uint64_t demote_count = 0;
  std::uint64_t freed_bytes = 0;
  std::uint64_t kept_bytes = 0;          ///< what stays, demotions counted
  std::uint64_t wanted_free = 0;         ///< free space that pressure requires on the volume
  std::optional<std::string> aborted{};  ///< a guard stopped the run: nothing of it may be carried out
  std::vector<std::string> warnings{};
};

/// Decides. O(n log n) in checkpoints for each rule.
///
/// checkpoints  those of the runs that `policy` selects (policy_of); fewer than 2^32 - 1
/// errors       usage: an empty policy, more than kMostRules rules, an unknown name in group_by
Result<Retention> retain(std::span<const Checkpoint> checkpoints, const Policy& policy, const Situation& situation);

}  // namespace ckpt::catalog
