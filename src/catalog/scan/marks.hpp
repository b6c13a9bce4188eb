#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/checkpoint.hpp"
#include "engine/io/io.hpp"
#include "engine/store/foreign_names.hpp"
#include "format/result.hpp"

/// Marks: facts recorded about a checkpoint after it was saved. Small files in their own directory, outside every hash.
/// They are authoritative; the catalog only indexes them. Only this code reads and writes them (a save writes its
/// statistics with the rest of the checkpoint: writers/publish_save.hpp).
///
/// Each is a JSON object {"schema":"ckpt.mark/1","kind":...,"name":...,...}, at most 64 KiB, in a file called
/// KIND-DIGITS.json. DIGITS is XXH64 of its name, so no name can reach another path. Its last member is the hash of
/// everything before it; marks of earlier releases, without one, are read too.
namespace ckpt::catalog {

/// The name of the note with the time at which `verify --all` has checked a checkpoint without checksums.
inline constexpr std::string_view kScrubNote = "verify --all";

struct Mark {
  enum class Kind : std::uint8_t {
    pin,       ///< never delete this; until a date, or permanently. `name`: which pin, `text`: why
    tag,       ///< `name`
    note,      ///< `text`; `name` distinguishes several
    metric,    ///< `name`, `value`
    verified,  ///< every digest was read again; `value` other than 1: damage was found, described in `text`
    restored,  ///< a trainer has loaded it, on all of its ranks: the last time
    /// `name`: the path of a virtual checkpoint that refers to files of this one (reference_marks.hpp), or the id of
    /// another one whose bytes are stored in this one
    reference,
  } kind = Kind::note;
  std::string name{};
  std::string text{};
  std::string owner{};          ///< the author
  std::optional<Time> at{};     ///< when it was said
  std::optional<Time> until{};  ///< of a pin
  double value = 0;             ///< of a metric; may be NaN or infinite
};
std::string_view kind_name(Mark::Kind kind);

/// The file next to marks in which a save stores its statistics.
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
  /// Why an entry of the directory is unreadable; "" if all are readable. The checkpoint is kept then.
  std::string unreadable{};
};

/// Reads a directory of marks. One that does not exist holds none. Files that vanish meanwhile are skipped. Errors are
/// reported in `unreadable`.
Marks read_marks(Io& io, const std::string& directory);

/// A mark as in a directory of marks: for one that is written with the checkpoint itself.
struct MarkFile {
  std::string name{};  ///< "pin-0123456789abcdef.json"
  std::string text{};
};
/// errors   usage: a name, text or owner that is not UTF-8, or is too long
Result<MarkFile> mark_file(const Mark& mark);

/// The lock of a checkpoint while a mark is written or removed. Deleters check marks under the exclusive lock; a writer
/// of marks holds a reader's shared lock, so a confirmed mark is never deleted.
enum class Holding : std::uint8_t {
  lease,  ///< taken for the write
  ours,   ///< the caller holds the checkpoint's exclusive lock
};

/// Writes a mark, replacing one of the same kind and name: a temporary file, fsync, rename, fsync. Creates the
/// directory if missing. Durable on return. `names`: as Lease::take uses them, here and below.
/// errors   as mark_file; locked: the checkpoint is being deleted or replaced; io, no_space, not_found
Result<> write_mark(Io& io, const std::string& directory, const Mark& mark, Holding holding = Holding::lease,
                    const ForeignNames& names = {});

/// Removes a mark; false if there is none. Durable on return.
/// errors  locked, as write_mark; io; not_durable: it is removed
Result<bool> remove_mark(Io& io, const std::string& directory, Mark::Kind kind, std::string_view name,
                         const ForeignNames& names = {}, Holding holding = Holding::lease);

}  // namespace ckpt::catalog
