#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/catalog/prune.hpp"
#include "catalog/scan/own_links.hpp"
#include "catalog/scan/scan.hpp"

/// The store as a prune finds it, before anything is decided.
namespace ckpt {

struct ScannedStore {
  std::vector<catalog::Entry> entries{};
  std::set<std::pair<std::string, std::string>> named{};  ///< run and name of those that a person named
  std::vector<std::string> runs{};                        ///< all with a checkpoint, where only some are asked for
  std::vector<std::string> directories{};                 ///< those that hold none, too
  std::vector<catalog::OwnPlace> own{};                   ///< of ours, of all runs
  std::vector<OwnerlessMark> ownerless{};
  std::vector<std::string> warnings{};
  std::vector<catalog::Unread> unread{};
};

/// The checkpoints of the requested runs, from the catalog. If the plan will be executed, each is checked: its marks
/// may have changed without a note. Otherwise only those that justify deletions are.
/// errors  those of the catalog; not_found: a name; io: a run that was asked for cannot be read
Result<ScannedStore> read_store(Io& io, const std::string& store, const PruneRequest& request);

/// A pattern without matches is a warning, and so is an empty run.
/// errors  not_found: a name without a run, most likely mistyped
Result<> check_runs(Io& io, const PruneRequest& request, const std::vector<catalog::TrashEntry>& trash,
                    ScannedStore& scanned);

/// The runs of which something may go: what their trash says of them decides; none: all.
std::vector<std::string> concerned_runs(const PruneRequest& request, const ScannedStore& scanned);

/// Checkpoints that were restored from the trash have a new grace.
void note_undeleted(const std::vector<catalog::TrashEntry>& trash, catalog::Time now,
                    std::vector<catalog::Entry>& entries);

}  // namespace ckpt
