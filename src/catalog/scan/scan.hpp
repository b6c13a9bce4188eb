#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/links.hpp"
#include "engine/io/io.hpp"
#include "engine/store/foreign_names.hpp"
#include "format/result.hpp"

/// The checkpoints of a store, from its directories alone: STORE/RUN/NAME, where a run may be several
/// directories deep ("prod/llama"). Checkpoints directly in the store's directory belong to the run ".". Uses no
/// catalog.
namespace ckpt::catalog {

/// The result of detection for a directory.
struct Recognised {
  std::string format{};           ///< "" = nothing that is known
  bool unfinished = false;        ///< known, and its save never ended: not a checkpoint
  std::optional<Error> unread{};  ///< why it could not be looked at
};
/// Looks at names and first bytes only.
using Recognise = std::function<Recognised(Io& io, const std::string& directory)>;

/// Finds other tools' checkpoints. The caller supplies it: the catalog knows none of those tools.
struct OtherTools {
  ForeignNames names{};
  Recognise recognise{};  ///< empty: finds no checkpoint of another tool
};

/// The greatest depth of a run in its store.
inline constexpr unsigned kDeepestRun = 4;

/// A directory of a store, or of its trash, that could not be listed: what is in it is unknown, or known from before.
struct Unread {
  std::string run{};
  Error error{};
};

/// One directory of a store: itself, a run, or one that holds runs.
struct Folder {
  std::vector<EntryPlace> places{};    ///< checkpoints, in byte order of their names
  std::vector<std::string> folders{};  ///< to look into: names, in byte order
  std::vector<FoundLink> links{};      ///< symbolic links and trackers that lead to a known or unknown place; and what
                                       ///< virtual checkpoints with names of their own refer to
  /// Its contents may change without its directory: other tools' checkpoints, files that name one, links.
  bool is_restless = false;
};

/// Lists one. `run`: its path in the store, "." for the store. Nothing if it no longer exists.
/// errors  io and others: it cannot be listed
Result<std::optional<Folder>> list_folder(Io& io, std::string_view store, const std::string& run,
                                          const OtherTools& tools);

/// The path in the store of a directory below a run's.
std::string run_below(std::string_view run, std::string_view name);
/// The run of its directory: "." for a path without a slash.
std::string run_above(const std::string& run);
/// Its depth in the store: 0 for ".".
unsigned run_depth(std::string_view run);

struct Scan {
  std::vector<Entry> entries{};         ///< by run, then by name
  std::vector<std::string> warnings{};  ///< directories that could not be listed
};

/// Every checkpoint of a store, or of one run and below. Directories that vanish meanwhile are skipped.
/// errors   not_found: the store does not exist; io: it cannot be listed
Result<Scan> scan(Io& io, const std::string& store, const OtherTools& tools, const std::string& run = ".");

}  // namespace ckpt::catalog
