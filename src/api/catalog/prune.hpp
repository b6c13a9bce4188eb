#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/catalog/prune_policies.hpp"
#include "api/verbs.hpp"
#include "catalog/explain.hpp"
#include "catalog/index/entry.hpp"
#include "catalog/retain.hpp"
#include "catalog/trash/trash.hpp"

/// Retention of a store: decided first, carried out second, from the same plan.
namespace ckpt {

struct PruneRequest {
  std::string store;
  std::vector<std::string> runs{};  ///< globs; empty = all that a policy selects
  PolicyWords policy{};
  bool approved = false;         ///< -y: also the first run of a policy that deletes much
  bool include_corrupt = false;  ///< corrupt ones may go
  bool carries_out = false;      ///< every checkpoint is checked, after stopped deletions were finished
  std::vector<std::uint64_t> drop_series{};
  catalog::Time now{};
};

/// What is decided about one policy's checkpoints.
struct PrunePart {
  catalog::Policy policy{};
  std::string fingerprint{};
  bool first_run = false;  ///< of a policy that is new or was changed
  std::vector<catalog::Entry> entries{};
  std::vector<catalog::Checkpoint> checkpoints{};  ///< of the entries, in their order
  catalog::Retention retention{};
  /// By index: what would go, and stays all the same, as --apply removes nothing that ckpt did not put there. Of a plan
  /// that is not carried out; text says what else it holds.
  std::map<std::uint32_t, std::string> held_back{};
  std::vector<std::uint32_t> recycled{};  ///< indices of what goes: the youngest, which feed the next save and have no
                                          ///< grace
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
  std::vector<std::string> ruleless{};      ///< runs that no policy selects: nothing of theirs is deleted
  std::vector<catalog::Entry> undecided{};  ///< their checkpoints
  std::vector<std::string> directories{};   ///< of the store: runs, and what holds runs or may
  std::vector<std::string> warnings{};
  std::uint64_t trash_count = 0;
  std::uint64_t demote_count = 0;
  std::uint64_t freed_bytes = 0;     ///< without those that feed the next save
  std::uint64_t recycled_bytes = 0;  ///< of those
  TrashSum purge_due{};              ///< what is in the trash and past its grace: to be removed permanently
  bool aborted = false;              ///< a guard stopped a part: of that part nothing is carried out
};

/// Decides by the store's catalog, and changes nothing else. What stays and makes that others go is checked first,
/// quickly (structure and sizes): what cannot be opened does not count as kept.
/// errors  of read_policies; not_found: the store; interrupted; io
Result<PrunePlan> plan_prune(Session& session, const PruneRequest& request);

struct CarryOut {
  catalog::Time now{};
  std::string by{};  ///< "ana@n17 pid 4211"
  std::chrono::milliseconds lock_timeout{0};
};

/// What became of one decision that was not to keep.
struct PruneStep {
  std::size_t part = 0;
  std::size_t index = 0;  ///< of the part's entries
  bool done = false;
  std::string kept_because{};  ///< where it was not done
};

struct PruneReport {
  std::vector<PruneStep> steps{};
  std::uint64_t trashed = 0;
  std::uint64_t demoted = 0;
  TrashSum trashed_wait{};  ///< of those trashed: in the trash for their grace, as they were not purged at once
  TrashSum demoted_wait{};  ///< of the optimizers of those demoted
  catalog::Deleter::Purged purged{};
  bool purged_early = false;  ///< space was so short that the trash did not wait for its grace
  bool stopped = false;       ///< by the session: what follows was not begun
  bool complete = true;       ///< everything that was planned was done
};

/// Puts into the trash what the plan says, whole checkpoints or their optimizers (what is left of those is checked
/// first, quickly), then removes what has been there for its grace. What is read now, or is not
/// any more what was decided about, stays and is told; what another process deleted meanwhile is passed over. Of what
/// is removed the data files of the youngest sets feed the next save, as many sets as the greatest `recycle` of the
/// policies says; with less free space than the policies want none do, and those that wait for a save are removed
/// before the trash is touched early.
/// errors  locked: another process deletes in this store; unsupported: no locks on a
/// file system of this machine; interrupted,
///         io before anything was done
Result<PruneReport> carry_out(Session& session, const PrunePlan& plan, const CarryOut& how);

/// What carrying out the plan does with one checkpoint of a part, as far as is known before.
catalog::Action planned_action(const PrunePart& part, std::size_t index);
/// The WHY of one checkpoint of a part.
std::string why_text(const PrunePart& part, std::size_t index);

}  // namespace ckpt
