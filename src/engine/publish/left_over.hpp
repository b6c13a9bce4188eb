#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/strays.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/run/plan.hpp"
#include "format/result.hpp"

/// What killed runs leave: partials and their records. For publish.hpp, which says whose they are.
namespace ckpt {

/// Removes a leftover partial and its record. `locked` where a live process holds it, or where the file system cannot
/// tell, as its locks do not reach every host, and it has not been `watched` for long enough to know (watch_partial).
/// `own`: what may stand in it; unset where the caller has accounted for all of it.
/// errors  usage: something else does
Result<> sweep_left_over(Io& io, const std::string& partial, const OwnName& own, bool watched = false);

/// The directories a relative path lies in, outermost first, without the root.
std::vector<std::string> folders_of(std::string_view relative);

/// A leftover that a run goes on with.
struct LeftOver {
  std::unique_ptr<HeldLock> lock{};
  FileInfo identity{};
  std::set<std::string> folders{};     ///< below it, relative
  std::vector<bool> kept{};            ///< by file: it is there, with its space, or cut to its size
  std::vector<RecordedLeaf> leaves{};  ///< by leaf, of kept files only; not yet checked
};

/// Takes a leftover over, with what of it belongs to `files`; what else of its `own` stands in it is removed. Nothing
/// if there is none, or none with a record of this key (its `inode` is filled in): such a one is swept.
/// What more than `readers` may use (HoldOptions) is rebuilt.
/// A server's locks are believed: what would be taken from another host is work on the same target.
/// errors  as sweep_left_over; after any other it is as it was, or emptier
Result<std::optional<LeftOver>> take_over(Io& io, const std::string& partial, bool directory,
                                          const std::vector<TargetFile>& files, RecordKey key, const OwnName& own,
                                          std::uint32_t readers = 0777);

}  // namespace ckpt
