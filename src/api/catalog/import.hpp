#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/scan/marks.hpp"
#include "format/result.hpp"

/// Imports files from anywhere into a store: `ckpt save`.
namespace ckpt {

struct ImportRequest {
  /// Source, selection, checks, --dry-run and --restart. `target`, `to` and `overwrite` are ignored.
  ConvertRequest conversion{};
  std::string store{};                  ///< created if missing
  std::string run{};                    ///< path of the run in the store, at most four names deep
  std::optional<std::uint64_t> step{};  ///< none: the one that the source knows of itself
  std::vector<catalog::Mark> marks{};   ///< committed with it: a visible checkpoint has its pins
  bool link = false;                    ///< hard links to the source's files: import_link.hpp
  /// Training was rolled back to this step: a new series begins there, if a checkpoint that counts has a later step.
  /// But if the newest series began at the same step and has not reached this save's step, it continues.
  std::optional<std::uint64_t> back_to{};
};
struct ImportReport {
  ConvertReport conversion{};  ///< its target is the checkpoint's path; the beginning of that path with --dry-run
  std::uint64_t step = 0;
  std::string name{};  ///< of its directory in its run: "step-000001000.g7"; "" under --dry-run
  std::uint64_t generation = 0;
  std::uint64_t series = 0;
  /// The start of its age for time rules: the time of the source's newest file; for a linked one, when that was saved.
  /// "" with --dry-run, and if it cannot be read again.
  std::string created{};
  bool new_store = false;     ///< there was no directory of the store
  bool linked = false;        ///< its files are the source's own
  bool marked_later = false;  ///< it existed already, and got the marks now
};

/// Converts the source to the universal form as STORE/RUN/step-NNNNNNNNN.gG: G is 1 more than any generation of the run
/// and of its trash, the series is the run's newest (but for `back_to`), and nothing that exists is replaced. The same
/// source and parameters at the same step of the run are `already_done`. A step that the run already has, or an older
/// one, is saved too, as the newest checkpoint of the run; a note says so. Leftovers of killed saves of the run are
/// removed at the end. No database is opened: the catalog gets a note. Collective, as convert.
///
/// With `link` no data is copied: the source is of the universal form and on the store's file system, and the
/// checkpoint has its id. A run holds an id once: if it has it as another step, or in the trash, the import is refused.
///
/// errors   as convert; usage: an invalid run or step, no step where the source has none, or a source that cannot be
///          linked
Result<ImportReport> import_checkpoint(Session& session, const ImportRequest& request);

}  // namespace ckpt
