#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/scan.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Checks kept checkpoints on disk before anything is deleted: the catalog only has their last known state.
namespace ckpt {

/// The current place of a checkpoint. Nothing if no longer exists or has been replaced.
Result<std::optional<catalog::EntryPlace>> place_of(Io& io, const std::string& store, const catalog::Entry& entry);

/// Whether both have the same metrics; NaN equals NaN.
bool same_metrics(const catalog::Checkpoint& a, const catalog::Checkpoint& b);

/// Result of checking one checkpoint.
struct RecheckedCheckpoint {
  bool is_same = false;                               ///< nothing that retention uses has changed
  std::optional<catalog::Entry> now{};                ///< if it changed: the current entry, if readable
  catalog::State state = catalog::State::unreadable;  ///< if unchanged: result of the quick check (structure and sizes)
  std::string reason{};                               ///< why it does not count; empty: it is intact
};

/// Checks each of them, in parallel on the session's threads if there are many; the threads share its memory.
/// errors  interrupted
Result<std::vector<RecheckedCheckpoint>> look_again(Session& session, const std::string& store,
                                                    const std::vector<const catalog::Entry*>& known);

}  // namespace ckpt
