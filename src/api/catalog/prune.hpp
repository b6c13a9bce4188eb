#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/prune_policies.hpp"
#include "api/verbs.hpp"
#include "catalog/index/refresh.hpp"
#include "catalog/report/explain.hpp"
#include "catalog/retain.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/trash/trash.hpp"

/// Retention of a store: decided first, carried out second, from the same plan.
namespace ckpt {

struct PruneRequest {
  std::string store;
  std::vector<std::string> runs{};  ///< globs; empty = all that a policy selects
  PolicyWords policy{};
  /// Checkpoints that a person names, as find_in_catalog takes them, or by a path in the store: these go, and no policy
  /// decides. Guards and the floor hold. `runs` and `policy` are not used.
  std::vector<std::string> named{};
  bool approved = false;         ///< -y: also the first run of a policy that deletes much
  bool include_damaged = false;  ///< corrupt ones may go
  bool carries_out = false;      ///< every checkpoint is checked, after stopped deletions were finished
  /// Limit of a plan that is only shown: checkpoints that are searched for links (50 us each), and checkpoints that
  /// justify deletions and are checked (200 us). A warning counts the rest; carrying the plan out has no limit.
  std::size_t most_looked_into = 4096;
  std::vector<std::uint64_t> drop_series{};
  catalog::Time now{};
};

/// The decision about one policy's checkpoints.
struct PrunePart {
  catalog::Policy policy{};
  std::string fingerprint{};
  bool first_run = false;  ///< of a policy that is new or was changed
  std::vector<catalog::Entry> entries{};
  std::vector<catalog::Checkpoint> checkpoints{};  ///< of the entries, in their order
  std::vector<bool> chosen{};                      ///< by index: named for deletion; empty: the policy decides
  catalog::Retention retention{};
  /// A `best` rule names a metric that no checkpoint of the part has: it would protect nothing. The part is stopped.
  struct UnknownMetric {
    std::string rule{};
    std::string metric{};
    std::vector<std::string> known{};  ///< metrics that there are
  };
  std::optional<UnknownMetric> unknown_metric{};
  /// By index: planned deletions that will not be made, as --apply removes no file that ckpt did not write. For a plan
  /// that is not executed; text names the other files.
  std::map<std::uint32_t, std::string> held_back{};
  std::vector<std::uint32_t> recycled{};  ///< indices of deleted ones: the newest, whose files the next save reuses,
                                          ///< without grace
};

/// A mark in a checkpoint whose virtual checkpoint is gone.
struct OwnerlessMark {
  std::string checkpoint{};  ///< path
  std::string owner{};       ///< path of the virtual one
};

/// Things in the trash.
struct TrashSum {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

struct PrunePlan {
  std::string store;
  Policies policies{};
  std::string known_as{};          ///< under which its policies are remembered: their source, and the runs asked for
  std::vector<PrunePart> parts{};  ///< in the order of the policies; those without a checkpoint too
  std::vector<std::string> ruleless{};             ///< runs that no policy selects: nothing in them is deleted
  std::map<std::string, std::string> elsewhere{};  ///< of these, those with a nearer ckpt.toml, and its directory
  std::vector<catalog::Entry> undecided{};         ///< their checkpoints
  std::vector<std::string> directories{};          ///< of the store: runs, and directories that hold or may hold runs
  std::vector<OwnerlessMark> ownerless{};
  std::vector<std::string> warnings{};
  std::vector<catalog::Unread> unread{};  ///< directories of the store: what is in them is unknown, or from before
  std::uint64_t trash_count = 0;
  std::uint64_t demote_count = 0;
  std::uint64_t freed_bytes = 0;     ///< without those that feed the next save
  std::uint64_t recycled_bytes = 0;  ///< of those
  TrashSum purge_due{};              ///< in the trash past its grace: to be removed permanently
  bool by_name = false;              ///< a person named what goes: nothing is purged, and no policy is remembered
  bool aborted = false;              ///< a guard stopped a part: of that part nothing is carried out
};

/// Decides by the store's catalog, and changes nothing else. Kept checkpoints that justify deletions are checked first,
/// quickly (structure and sizes): one that does not open does not count as kept.
/// errors  of read_policies; not_found: the store; interrupted; io
Result<PrunePlan> plan_prune(Session& session, const PruneRequest& request);

struct CarryOut {
  catalog::Time now{};
  std::string by{};  ///< "ana@n17 pid 4211"
  std::chrono::milliseconds lock_timeout{0};
};

/// The outcome of one decision other than keep.
struct PruneStep {
  std::size_t part = 0;
  std::size_t index = 0;  ///< of the part's entries
  bool done = false;
  bool in_use = false;         ///< it was not done because it is being read
  std::string kept_because{};  ///< if it was not done
};

struct PruneReport {
  std::vector<PruneStep> steps{};
  std::uint64_t trashed = 0;
  std::uint64_t demoted = 0;
  TrashSum trashed_wait{};  ///< of the deleted: in the trash for their grace, not purged at once
  TrashSum demoted_wait{};  ///< of the optimizers of those demoted
  catalog::Deleter::Purged purged{};
  bool purged_early = false;  ///< space was so short that the trash did not wait for its grace
  bool stopped = false;       ///< by the session: the rest was not started
  bool complete = true;       ///< everything that was planned was done
};

/// Moves checkpoints or their optimizers to the trash according to the plan (the remaining part
/// of a checkpoint is checked first, quickly), then purges what has passed its grace. A
/// checkpoint that is in use or has changed since the plan stays and is reported; one that
/// another process has deleted is skipped. Data files of the newest purged sets are kept for the
/// next save, as many sets as the greatest `recycle` of the policies; if less space is free than
/// the policies want, none are, and those in recycle/ are removed before the trash is purged
/// early.
/// errors  locked: another process deletes in this store; unsupported: no locks on a file system of this machine;
///         interrupted, io before anything was done
Result<PruneReport> carry_out(Session& session, const PrunePlan& plan, const CarryOut& how);

/// What executing the plan does with one checkpoint of a part, as far as known before.
catalog::Action planned_action(const PrunePart& part, std::size_t index);
/// The WHY of one checkpoint of a part.
std::string why_text(const PrunePart& part, std::size_t index);

}  // namespace ckpt
