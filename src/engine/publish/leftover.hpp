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

/// Leftovers of killed runs: partials and their records. For publish.hpp, which knows their owners.
namespace ckpt {

/// Removes a leftover partial and its record. `locked` if a live process holds it, or if locks do not reach every host
/// and it was not `watched` long enough (watch_partial). `own`: names that may be in it; unset if the caller has
/// accounted for all.
/// errors  usage: it holds other files
Result<> sweep_leftover(Io& io, const std::string& partial, const OwnName& own, bool watched = false);

/// The directories of a relative path, outermost first, without the root.
std::vector<std::string> folders_of(std::string_view relative);

/// A leftover that a run resumes.
struct Leftover {
  std::unique_ptr<HeldLock> lock{};
  FileInfo identity{};
  std::set<std::string> folders{};     ///< below it, relative
  std::vector<bool> kept{};            ///< by file: it exists, with its space, or cut to its size
  std::vector<RecordedLeaf> leaves{};  ///< by leaf, of kept files only; not yet checked
};

/// Takes ownership of a leftover, with its files that are in `files`; other files of `own` are removed. Nothing if
/// there is none, or none with a record of this key (its `inode` is filled in), in which case it is swept. Files that
/// more users than `readers` may read (HoldOptions) are rebuilt. Locks of a server are trusted: another host would be
/// working on the same target.
/// errors  as sweep_leftover; after any other error it is unchanged, or has fewer files
Result<std::optional<Leftover>> take_over(Io& io, const std::string& partial, bool directory,
                                          const std::vector<TargetFile>& files, RecordKey key, const OwnName& own,
                                          std::uint32_t readers = 0777);

}  // namespace ckpt
