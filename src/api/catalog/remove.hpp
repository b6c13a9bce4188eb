#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"

/// `ckpt rm`: moves checkpoints that a person names into the trash, as a prune does.
namespace ckpt {

struct RemoveRequest {
  std::string store;
  std::vector<std::string> names{};  ///< as find_in_catalog takes them, or paths in the store
  bool dry_run = false;
  catalog::Time now{};
  std::string by{};  ///< "ana@n17 pid 4211"
  std::chrono::milliseconds lock_timeout{0};
};

struct NamedRemoval {
  std::string run{};
  std::string name{};   ///< of its directory
  std::string label{};  ///< its name in outputs: catalog::ShortNames
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  catalog::Time kept_until{};  ///< in the trash
  std::string refused{};       ///< why it stays; "": it is in the trash, or would be
};

struct RemoveReport {
  std::vector<NamedRemoval> removals{};  ///< by run, newest first
  std::vector<std::string> warnings{};
  bool stopped = false;  ///< by the session: the rest was not started
};

/// Guards and the floor hold (retain.hpp): what they keep is refused, and the others go. A corrupt or superseded
/// checkpoint goes. Grace and guards are those of STORE/ckpt.toml, else the defaults. Nothing is purged.
/// errors  not_found: the store, or a name, with a hint where it is in the trash; usage: a name that several have;
///         those of plan_prune and carry_out
Result<RemoveReport> remove_checkpoints(Session& session, const RemoveRequest& request);

}  // namespace ckpt
