#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/bucket.hpp"
#include "catalog/trash/trash.hpp"

namespace ckpt {

/// The state of a store, and problems of its checkpoints. Reads no tensor data.
struct StoreFacts {
  std::string path;
  std::string own{};                  ///< its .ckpt
  std::optional<Error> unwritable{};  ///< .ckpt cannot be written
  bool has_catalog = false;
  std::optional<Error> catalog{};  ///< it cannot be opened, or SQLite's own check finds it damaged
  std::uint64_t catalog_late = 0;  ///< unknown to the catalog, or changed; it is current now
  struct Group {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::string first{};  ///< the first one's path, then the reason if known
  };
  Group inner{};       ///< stores in this one: no command on this one sees their trash, nor what is noted there
  Group leftover{};    ///< of killed saves; no process holds them
  Group claims{};      ///< of readers on other hosts that ended, or are silent since the last look
  Group stopped{};     ///< interrupted deletions
  Group past_grace{};  ///< in the trash past their grace
  Group unrecorded{};  ///< in the trash, without a record: nothing ever removes them
  catalog::Recycled recycled{};  ///< wait for the next save
  Group unknown_recycled{};      ///< in recycle/, but not put there by ckpt: never used nor removed
  Group marks_unreadable{};      ///< checkpoints with unreadable marks
  Group corrupt{};
  Group unreadable{};
  std::vector<std::string> unlistable{};  ///< things that could not be checked
};

/// Nothing if the directory has no .ckpt: it is not a store yet. The catalog is refreshed.
/// errors   interrupted
Result<std::optional<StoreFacts>> read_store_facts(Session& session, const std::string& path, catalog::Time now);

}  // namespace ckpt
