#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "catalog/bucket.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Who deleted a checkpoint, when, why, and its state since. A small file next to it in the trash, which remains after
/// the purge: README.md, "Trash".
struct TrashRecord {
  enum class State : std::uint8_t {
    trashed,    ///< in the trash, or about to be renamed there: the location of the checkpoint decides
    purging,    ///< being removed: it cannot be restored
    purged,     ///< removed permanently
    restored,   ///< back in its run
    restoring,  ///< a dropped optimizer that is being restored: it is never purged
  } state = State::trashed;
  std::string id{};  ///< of the checkpoint; empty if it has none
  std::uint64_t step = 0;
  std::uint64_t series = 0;
  std::optional<std::uint64_t> series_from{};  ///< what it superseded stays superseded
  std::optional<std::uint64_t> series_after{};
  Time created{};
  std::optional<Time> committed{};  ///< when it came into the store; missing in records of earlier releases
  std::uint64_t bytes = 0;          ///< that its removal frees
  bool recycled = false;            ///< of a purged one: its data files went to recycle/
  std::string dropped{};            ///< "optim": only this class of its files is here; the checkpoint exists without it
  Time deleted{};
  std::string by{};      ///< "ana@n17 pid 4211"
  std::string why{};     ///< as `ckpt prune` showed it
  std::string policy{};  ///< its name and origin
  Time purge_at{};
  Time changed{};  ///< when `state` was set
  std::string changed_by{};

  bool operator==(const TrashRecord&) const = default;
};

/// Suffix of the name of a dropped optimizer's files in the trash.
inline constexpr std::string_view kOptimizerSuffix = ".optim";

/// Until when a restored checkpoint is kept: its grace in the trash, counted from the restoration.
Time undeleted_until(const TrashRecord& record);

const char* state_name(TrashRecord::State state);  ///< "trashed"

/// One JSON object and a line break. Bytes that are not UTF-8 become '?'.
std::string record_text(const TrashRecord& record);

/// errors  corrupt: not made by record_text
Result<TrashRecord> parse_record(std::string_view text);

constexpr std::uint64_t kMostRecordBytes = std::uint64_t{1} << 20;

}  // namespace ckpt::catalog
