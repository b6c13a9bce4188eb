#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/scan/marks.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Whether a name means a checkpoint: RUN@STEP, RUN@STEP.gN, RUN@NAME, RUN/NAME, or six or more digits of its id.
bool names_checkpoint(std::string_view name, const std::string& run, const std::string& directory, std::uint64_t step,
                      const std::string& id);

struct UndeleteRequest {
  std::string store;
  std::vector<std::string> names{};      ///< as of names_checkpoint, or runs (globs): all of them in the trash
  bool all = false;                      ///< everything in the trash
  std::optional<catalog::Time> since{};  ///< only what was deleted then or later; without names everything that was
  std::optional<catalog::Mark> pin{};    ///< for each that is restored
  catalog::Time now{};
  std::string by{};
  std::chrono::milliseconds lock_timeout{0};
};
struct UndeleteReport {
  std::vector<catalog::TrashEntry> restored{};  ///< with their new records
  std::vector<catalog::TrashEntry> in_place{};  ///< in their runs already, as after a command that was killed
  std::vector<std::pair<std::string, std::string>> refused{};   ///< name as given, why
  std::vector<std::pair<std::string, std::string>> unpinned{};  ///< restored, but not pinned: name, why
  std::vector<catalog::Unread> unread{};                        ///< of the trash, where all was asked for
};
/// Restores checkpoints from the trash; of several of one step the newest generation. Prune keeps a restored one for as
/// long as its grace was (catalog::undeleted_until). Continues after a refusal. The same command again does the rest.
/// errors  not_found: neither the trash nor its run has such a name; then nothing is restored. locked, unsupported, io:
///         also where a name may be in a directory of the trash that cannot be listed
Result<UndeleteReport> undelete(Io& io, const UndeleteRequest& request);

/// ckpt list --trash.
struct TrashListing {
  std::vector<catalog::TrashEntry> entries{};  ///< with files, by run and name; `shares_step` is set
  std::vector<catalog::Unread> unread{};
};
/// errors  not_found: the store; io
Result<TrashListing> list_deleted(Io& io, const std::string& store);

}  // namespace ckpt
