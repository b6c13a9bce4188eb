#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/bucket.hpp"
#include "format/hash.hpp"

/// `ckpt repair`: leftovers of crashed saves and deletions, and lost or torn manifests. Found first, repaired second,
/// from the same list. Damaged data cannot be repaired.
namespace ckpt {

enum class Defect : std::uint8_t {
  leftover,       ///< a save or conversion that was killed: removed
  claim,          ///< of a reader that ended without taking it back: removed
  manifest,       ///< manifest.json is lost or torn, its copy is right: restored from that
  manifest_copy,  ///< the copy is lost, torn or old: restored from manifest.json
  deletion,       ///< deletions or their records that a crash stopped: finished
  damage,         ///< bytes are wrong or missing: nothing here repairs that
  unread,         ///< a system error or a later release's format prevented the check: nothing is known
};
const char* defect_name(Defect defect);  ///< "left-over"

struct RepairItem {
  Defect defect = Defect::damage;
  std::string path{};       ///< of the partial, the checkpoint, or the trash
  std::string text{};       ///< the finding
  std::uint64_t bytes = 0;  ///< that removing it frees
  std::vector<Finding> damage{};
  bool planned = false;  ///< to be repaired
  bool done = false;
  std::string kept_because{};  ///< why it is not to be repaired, or could not be

  /// Of a manifest: the good copy, the copy to be replaced, and the text of the good one if every record of sums.bin
  /// was right with it.
  std::string from{};
  std::string to{};
  Hash128 text_hash{};
};

struct RepairRequest {
  std::string path;  ///< of a store, a run, a checkpoint, or a leftover
  bool apply = false;
  bool names_only = false;  ///< only findings from names: leftovers and interrupted deletions
  std::string by{};
  std::function<catalog::Time()> clock{};
  std::chrono::milliseconds lock_timeout{0};  ///< for others that delete in the store
};

struct RepairReport {
  std::string path;
  bool applied = false;
  std::vector<RepairItem> items{};  ///< by path
  std::uint64_t checkpoints = 0;    ///< ours, checked
  std::uint64_t bytes = 0;          ///< read and compared
  /// Something stays broken: checkpoints that this command did not repair.
  bool is_broken() const;
  /// Everything could be checked, and every repair was made.
  bool is_complete() const;
};

/// Checks, and with `apply` repairs. In a store or a run, manifests and marks are read; if a manifest must be replaced,
/// and if `path` is a checkpoint, every checksum is compared. Only a partial whose lock can be taken is a leftover; one
/// that a conversion could resume stays unless `path` names it. A manifest is replaced only under the checkpoint's
/// exclusive lock and only if it is unchanged since it was checked; the checkpoint is marked (a note `repaired`)
/// before, and as verified after. Continues after failures.
///
/// errors   not_found; usage: not a directory; unsupported: another tool's checkpoint; io: it cannot be listed;
///          interrupted
Result<RepairReport> repair(Session& session, const RepairRequest& request);

}  // namespace ckpt
