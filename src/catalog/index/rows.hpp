#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/scan/entry.hpp"
#include "format/result.hpp"

/// Entries as rows, and back. Each function may be part of a transaction that its caller began.
namespace ckpt::catalog {

/// Which checkpoints are asked for.
struct Query {
  std::optional<std::string> run{};   ///< exactly this one
  std::optional<std::string> name{};  ///< of the directory
  std::optional<std::uint64_t> step{};
  std::string id_prefix{};
  std::string tag{};
  std::uint64_t limit = UINT64_MAX;
  /// Asked of each, which it may complete; those that it refuses do not count. None: all pass.
  std::function<bool(Entry&)> passes{};
};

/// By run, each newest first (series, step, generation).
/// errors  as sqlite_code
Result<std::vector<Entry>> select_entries(Database& database, const Query& query);
Result<std::uint64_t> count_entries(Database& database);
/// The runs that have checkpoints, in byte order: one step of the index each, however many those are.
/// errors  as sqlite_code; corrupt: the index is out of order
Result<std::vector<std::string>> runs_with_entries(Database& database);

/// Replaces the row of its run and name.
Result<> store_entry(Database& database, const Entry& entry);
Result<> remove_entry(Database& database, const std::string& run, const std::string& name);

/// The facts for listing a run's directory.
struct KnownRun {
  std::string run{};
  Stamp stamp{};
  bool settled = false;
  bool is_restless = false;  ///< its contents may change without its directory
};
Result<std::vector<KnownRun>> select_runs(Database& database);
Result<> store_run(Database& database, const KnownRun& run);
/// With its checkpoints and those of all runs below.
Result<> remove_run(Database& database, const std::string& run);
/// For other tables: the rows of a run, or of one below.
Result<> remove_run(Database& database, const std::string& run, std::initializer_list<const char*> tables);

/// A checkpoint as it was read.
struct KnownEntry {
  std::string name{};
  bool foreign = false;
  Stamp directory{};
  Stamp marks{};
  Stamp manifest{};
  bool unreadable = false;  ///< it, or its marks, at that moment
  std::vector<std::string> trackers{};
};
/// Newest first, at most this many. `with_trackers`: including those of runs with trackers.
Result<std::vector<KnownEntry>> select_known(Database& database, const std::string& run,
                                             std::uint64_t newest = UINT64_MAX, bool with_trackers = false);

/// "ORDER BY ..." of a run's checkpoints from the one saved last: by generation, as a run may go back to an earlier step.
/// Another tool's have none: in a run that holds such ones too, by series and step. To be called in `asked`.
std::string newest_first(Database& database, const std::string& run);

}  // namespace ckpt::catalog
