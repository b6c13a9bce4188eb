#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/index/marks.hpp"
#include "format/result.hpp"

/// Files that lie anywhere become a checkpoint of a store: `ckpt save`.
namespace ckpt {

struct ImportRequest {
  /// Source, selection, checks, --dry-run and --restart. `target`, `to`, `overwrite` and `hooks` are not looked at.
  ConvertRequest conversion{};
  std::string store{};                  ///< made where it is missing
  std::string run{};                    ///< path of the run in the store, at most four names deep
  std::optional<std::uint64_t> step{};  ///< none: the one that the source knows of itself
  std::vector<catalog::Mark> marks{};   ///< committed with it: whoever sees the checkpoint sees its pins
  bool link = false;                    ///< its files are to be the source's own: import_link.hpp
  /// The training went back to this step before: a series begins there, if anything that counts is of a later step;
  /// but where the newest series began at the same step, and has not reached this save's, it goes on.
  std::optional<std::uint64_t> back_to{};
};
struct ImportReport {
  ConvertReport conversion{};  ///< its target is the checkpoint's path; what it would begin with under --dry-run
  std::uint64_t step = 0;
  std::string name{};  ///< of its directory in its run: "step-000001000.g7"; "" under --dry-run
  std::uint64_t generation = 0;
  std::uint64_t series = 0;
  /// From when rules of time count: the newest file of the source; of what is linked, when that was saved. "" under
  /// --dry-run, and where it cannot be read again.
  std::string created{};
  bool new_store = false;     ///< there was no directory of the store
  bool linked = false;        ///< its files are the source's own
  bool marked_later = false;  ///< it was there already, and got the marks now
};

/// Converts the source to the universal form as STORE/RUN/step-NNNNNNNNN.gG: G is 1 more than any generation of the run
/// and of its trash, the series is the run's newest (but for `back_to`), and nothing that exists is
/// replaced. The same source and parameters at the same step of the run are `already_done`. A step that the run has
/// already, or an older one, is saved too, as the newest checkpoint of the run; a note says so. What killed saves of
/// the run had left is removed in the end. No database is opened: the catalog is left a note. Collective, as convert.
///
/// With `link` no data is copied: the source is of the universal form and on the store's file system, and the
/// checkpoint has its id. One run has an id once: what it has as another step, or in the trash, is refused.
///
/// errors   as convert; usage: a run or a step that cannot be, none where the source knows none, or what cannot be
///          linked
Result<ImportReport> import_checkpoint(Session& session, const ImportRequest& request);

}  // namespace ckpt
