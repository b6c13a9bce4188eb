#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/checkpoint.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// What was said of a checkpoint after it was saved: small files in a directory of its own, outside every hash. They
/// are the truth; the catalog only indexes them. This is the one place that reads and writes them (a save writes its
/// statistics with the rest of the checkpoint: writers/publish_save.hpp).
///
/// Each is a JSON object {"schema":"ckpt.mark/1","kind":...,"name":...,...}, at most 64 KiB, and its file is called
/// KIND-DIGITS.json, DIGITS being XXH64 of its name, so that no name can reach another path. Its last member is the
/// hash of all before it; marks without one, of earlier releases, are read too.
namespace ckpt::catalog {

struct Mark {
  enum class Kind : std::uint8_t {
    pin,        ///< never delete this; until a date, or permanently. `name`: which pin, `text`: why
    tag,        ///< `name`
    note,       ///< `text`; `name` tells several apart
    metric,     ///< `name`, `value`
    verified,   ///< every digest was read again; `value` other than 1: and damage was found, `text` says which
    restored,   ///< a trainer has loaded it, on all of its ranks: the first time
    reference,  ///< `name`: the id of a checkpoint whose bytes lie here
  } kind = Kind::note;
  std::string name{};
  std::string text{};
  std::string owner{};          ///< who says so
  std::optional<Time> at{};     ///< when it was said
  std::optional<Time> until{};  ///< of a pin
  double value = 0;             ///< of a metric; may be NaN or infinite
};
std::string_view kind_name(Mark::Kind kind);

/// The file beside marks that a save leaves there.
inline constexpr std::string_view kStatisticsName = "save-statistics.json";

/// How long a save took, by its own statistics: of the slowest rank.
struct SaveCost {
  double plan_s = 0;
  double stage_s = 0;
  double write_s = 0;
  std::uint64_t ranks = 0;
};

struct Marks {
  std::vector<Mark> marks{};  ///< in byte order of their files' names
  std::optional<SaveCost> save{};
  /// Why something in the directory is not understood; "" where all is. Nobody knows then what was said: keep it.
  std::string unreadable{};
};

/// Reads a directory of marks. One that is not there holds none. Files that vanish meanwhile are passed over. Nothing
/// in it is an error: what cannot be read is told in `unreadable`.
Marks read_marks(Io& io, const std::string& directory);

/// A mark as in a directory of marks: for one that is written with the checkpoint itself.
struct MarkFile {
  std::string name{};  ///< "pin-0123456789abcdef.json"
  std::string text{};
};
/// errors   usage: a name, text or owner that is not UTF-8, or is too long
Result<MarkFile> mark_file(const Mark& mark);

/// How a checkpoint is held while a mark of it is written or removed. Whoever deletes looks at its marks under the
/// exclusive lock; who writes one holds the shared lock of a reader, so no mark is acknowledged and then deleted.
enum class Holding : std::uint8_t {
  lease,  ///< taken for the write
  ours,   ///< the caller holds the checkpoint's exclusive lock
};

/// Writes a mark, in place of one of the same kind and name: a temporary file, fsync, rename, fsync. The directory is
/// made where it is missing. Durable on return.
/// errors   as mark_file; locked: the checkpoint is being deleted or replaced; io, no_space, not_found
Result<> write_mark(Io& io, const std::string& directory, const Mark& mark, Holding holding = Holding::lease);

/// Writes a mark if there is none of its kind and name. False where there is one, or another process writes one at
/// this moment: several jobs may say the same of one checkpoint.
/// errors  as write_mark; unsupported: no locks here
Result<bool> write_mark_once(Io& io, const std::string& directory, const Mark& mark);

/// Removes a mark; false if there is none. Durable on return.
/// errors  locked, as write_mark; io
Result<bool> remove_mark(Io& io, const std::string& directory, Mark::Kind kind, std::string_view name);

}  // namespace ckpt::catalog
