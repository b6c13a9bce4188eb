#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/catalog/prune.hpp"

namespace ckpt {

struct WhyReport {
  std::string store{};
  struct Ruleless {
    catalog::Entry entry;
    std::string label;   ///< as ShortNames gives it
    std::string held{};  ///< what protects it from any policy: "pinned by ana"; only where the store has none; or which
                         ///< policy does
  };
  std::optional<PrunePlan> plan{};                          ///< nothing if the store has no policy
  std::vector<std::pair<std::size_t, std::size_t>> live{};  ///< part and entry of the plan, newest last
  std::vector<Ruleless> ruleless{};                         ///< those that no policy decides about
  std::vector<catalog::TrashEntry> history{};               ///< deletions, oldest first
  std::vector<std::string> warnings{};  ///< what is said of a checkpoint is from before: its run cannot be read now
};

/// Why a checkpoint is kept, or was deleted, by a name that names_checkpoint understands, or by a word as for
/// find_in_catalog: the runs of `request` are not used.
/// errors  not_found: the store has no record of such a checkpoint; those of plan_prune
Result<WhyReport> explain_checkpoint(Session& session, PruneRequest request, const std::string& asked);

}  // namespace ckpt
