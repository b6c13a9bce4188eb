#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/retain.hpp"
#include "catalog/scan/scan.hpp"
#include "catalog/trash/record.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/io/io.hpp"
#include "engine/locks/claims.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/store/foreign_names.hpp"
#include "engine/store/recycle.hpp"
#include "format/result.hpp"

/// Deletion, in two phases. A checkpoint STORE/RUN/NAME is put into the trash by a rename to
/// STORE/.ckpt/trash/RUN/NAME, next to which NAME.json records who, when and why; it can be restored until its grace is
/// over and it is purged. Steps, each durable before the next:
///   put      1 it is not in use: its exclusive lock, held to the end; all its files are its own   2 the record
///            3 the rename
///   restore  1 it is not in use or being purged   2 the rename   3 the record: restored
///   purge    1 it is not in use or pinned, and all its files are its own   2 the record: purging   3 the files that
///            make it a checkpoint are unlinked   4 all others   5 the record: purged
///   recycle  purge, of which the data files go to STORE/.ckpt/recycle between 3 and 4 (engine/store/recycle.hpp)
/// A checkpoint is demoted (its optimizer dropped) in the same way; its files go to STORE/.ckpt/trash/RUN/NAME.optim:
///   demote   1 it is not in use, and its optimizer's files are its own   2 the record   3 manifest.json, one revision
///            later: from here on it is weights only   4 the second copy of the manifest   5 the rename
///   restore  1 it is not in use   2 the record: restoring   3 the rename   4 manifest.json   5 its copy
///            6 the record: restored
/// Where locks do not reach every host, readers and deleters on other hosts are known by claims
/// (engine/locks/claims.hpp): put checks them again after its rename, demote after its step 3, and both undo it if a
/// reader appeared. A crash between any two steps leaves it whole in one of the two places,
/// or half removed with a record that says so; the next process that opens the trash
/// finishes it.
namespace ckpt::catalog {

/// A thing in the trash, or that was in it.
struct TrashEntry {
  std::string run{};         ///< path below the store; "." for the store's own directory
  std::string name{};        ///< that it had in its run; of a dropped optimizer that of its checkpoint
  std::string kept_as{};     ///< in the trash: the name, with ".~2" if that existed already; "NAME.optim" for a dropped
                             ///< optimizer
  bool present = false;      ///< its files are in the trash, or some of them
  bool recorded = false;     ///< `record` was read; without one nothing is ever purged
  bool shares_step = false;  ///< another save of its step is in the run or the trash: see note_shared_steps
  TrashRecord record{};
};

/// What a listing of the trash found besides.
struct TrashFaults {
  std::vector<std::string> unfinished{};  ///< paths of records that were never finished
  std::vector<Unread> unread{};           ///< what is in these is not in the listing
};

enum class TrashScope : std::uint8_t {
  all,      ///< also earlier contents of the trash, as far back as its records go
  present,  ///< entries with files: other records are not read
};
/// The contents of a store's trash, by run and name. Needs no lock: concurrent changes are seen before or after.
/// With `faults`, which gets them, directories that cannot be listed are left out.
/// errors  io
Result<std::vector<TrashEntry>> list_trash(Io& io, const std::string& store, TrashScope scope = TrashScope::all,
                                           TrashFaults* faults = nullptr);

/// Sets `shares_step` of each: its name in outputs needs the generation then. Whatever has the name of a checkpoint in the
/// run counts. A run that cannot be listed has no other.
void note_shared_steps(Io& io, const std::string& store, std::span<TrashEntry> entries, const ForeignNames& names);

/// What a record says about its series, of which nothing else may be left.
SeriesBirth birth_of(const TrashEntry& entry);
std::vector<SeriesBirth> births_of(const std::vector<TrashEntry>& entries);
/// The same of the newest 1,000 records of a run's deletions: later series have later generations, so of a run of many years
/// no more are needed.
/// errors  io
Result<std::vector<SeriesBirth>> births_in_trash(Io& io, const std::string& store, const std::string& run);
/// The same for the run in this directory, of all stores that it is in, as each may have deleted of it; but not of `known`
/// ("": of all). Their `run` is empty. A directory that cannot be searched counts as no store.
Result<std::vector<SeriesBirth>> births_above(Io& io, const std::string& run_directory, const std::string& known = {});
/// Those of runs of a store: from `trash`, its entries, and from other stores that a run is in.
Result<std::vector<SeriesBirth>> births_of_runs(Io& io, const std::string& store, const std::vector<TrashEntry>& trash,
                                                const std::set<std::string>& runs);

/// One directory of the trash, by names alone.
struct TrashFolder {
  struct Item {
    std::string kept_as{};
    bool present = false;
    bool has_record = false;
    bool is_link = false;  ///< an existing checkpoint counts, not its record
  };
  std::vector<Item> items{};              ///< by name
  std::vector<std::string> below{};       ///< runs whose directories are inside this one
  std::vector<std::string> unfinished{};  ///< paths of records that were never finished
};
/// An empty one if there is none.
/// errors  io
Result<TrashFolder> list_trash_folder(Io& io, const std::string& store, const std::string& run);
/// With its record, if that is readable. Nothing for a record that no longer exists.
std::optional<TrashEntry> read_trash_entry(Io& io, const std::string& store, const std::string& run,
                                           const TrashFolder::Item& item);

/// The space that purging a record's entry will free.
struct Waiting {
  bool is_optimizer = false;
  std::uint64_t bytes = 0;
  Time purge_at{};
  bool purging = false;  ///< it is being removed, regardless of its time
};
Waiting waiting_of(const TrashRecord& record);

/// The contents of the trash of a store, or of one run in it ("": all).
struct InTrash {
  std::uint64_t checkpoints = 0;
  std::uint64_t optimizers = 0;      ///< of checkpoints that now hold only weights
  std::uint64_t bytes = 0;           ///< of both, as their records say
  std::uint64_t over = 0;            ///< of both: whose grace is over; the next prune removes them
  std::optional<Time> first_over{};  ///< when the first one's grace ends, or did
  std::optional<Time> last_over{};   ///< when all of them are over
  std::uint64_t unrecorded = 0;      ///< in addition: entries without a record, which are never removed

  void add(const Waiting& one, Time now);
};
/// From the records; `catalog/index/trash_index.hpp` knows it without reading them.
/// errors  io
Result<InTrash> measure_trash(Io& io, const std::string& store, const std::string& run, Time now);

/// The record of when a checkpoint's optimizer was dropped last, and by whom. Nothing if there is none, as after a
/// year, or if it is unreadable.
std::optional<TrashEntry> find_demotion(Io& io, const std::string& store, const std::string& run,
                                        const std::string& name);

/// The trash, for one process at a time. One thread; `io` outlives it.
class Deleter {
 public:
  /// Waits for other processes until the deadline, then finishes interrupted deletions. `names`: of other tools'
  /// checkpoints.
  /// errors  locked: another process deletes here, on this host or another
  static Result<std::unique_ptr<Deleter>> open(Io& io, const std::string& store, Deadline deadline,
                                               const ForeignNames& names);

  struct Deletion {
    std::string run{};
    std::string name{};
    TrashRecord record{};  ///< all but state and changes
    /// Called when no new reader can start: whether it has changed since the decision.
    std::function<Result<bool>(const std::string& path)> still{};
  };
  /// `vanished` also if it has changed since the decision.
  /// errors  io, not_durable, no_space; not_done: it stays, as it holds files that are not its own (strays.hpp), or it
  ///         is in the trash although a reader has started
  Result<LockOutcome> put(const Deletion& deletion);

  /// Drops the optimizer state of a universal checkpoint; weights and everything else are unchanged. `record`: all
  /// members except `dropped`. `vanished` also if it has changed since the decision, or was already demoted.
  /// errors  as put; unsupported: its weights need that state; corrupt, checksum: its manifest. After one of the last
  ///         steps it is demoted, and the next process that opens the trash finishes
  Result<LockOutcome> demote(const Deletion& deletion);

  /// The reader because of which the last one was refused, or why it is unknown; empty if it is a process of this host.
  const std::string& reader() const { return reader_; }

  /// Brings one back, or its optimizer. `free`: it is back.
  /// errors  target_exists: its name was taken since; not_found: not in the trash; incomplete: it is being purged
  Result<LockOutcome> restore(const TrashEntry& entry, Time now, const std::string& by);

  struct Purged {
    std::vector<TrashEntry> gone{};    ///< as they were in the trash
    std::uint64_t bytes = 0;           ///< that are free now: without those in recycle/
    std::uint64_t recycled_count = 0;  ///< of `gone`: sets whose data files wait in recycle/
    std::uint64_t recycled_bytes = 0;
    std::uint64_t emptied_bytes = 0;  ///< removed from recycle/
    std::vector<std::string> kept{};  ///< "RUN/NAME: being read": the next purge tries again
    bool stopped = false;             ///< before all were removed
  };
  /// Purges those that `chosen` selects among recorded ones. Continues after one that cannot be removed.
  /// `recycled_sets`: how many sets' data files recycle/ holds afterwards, at most: the newest (by the time of their
  /// deletion) of those that are removed now and those already there. Ours only, checkpoints or optimizers; none if
  /// the file system does not benefit. Files there above that are unlinked first. Not given: everything is unlinked,
  /// and recycle/ is unchanged. Stops between two if `stop` is set.
  Result<Purged> purge(Time now, const std::string& by, const std::function<bool(const TrashEntry&)>& chosen,
                       std::optional<std::uint64_t> recycled_sets = {}, const std::atomic<bool>* stop = nullptr);
  /// Unfinished restorations and demotions of a killed process: the location of the files shows their state.
  static bool is_half_moved(const TrashEntry& entry) {
    return entry.recorded && !entry.record.dropped.empty() &&
           (entry.record.state == TrashRecord::State::restoring ||
            (entry.record.state == TrashRecord::State::trashed && !entry.present));
  }
  /// Purges that a killed process left unfinished; called with `purge` too.
  static bool is_half_purged(const TrashEntry& entry) {
    return entry.present && entry.recorded && entry.record.state == TrashRecord::State::purging;
  }

 private:
  Deleter(Io& io, std::string store, std::vector<std::string_view> markers, std::unique_ptr<HeldLock> lock,
          std::unique_ptr<ClaimFile> turn);
  Result<LockedCheckpoint> hold_here(const std::string& path, const Formerly& formerly = {});
  Result<LockedCheckpoint> hold_unchanged(const Deletion& deletion);
  Result<TrashEntry> announce(const Deletion& deletion, std::string_view dropped);
  Result<> give_back(const TrashEntry& entry, LockedCheckpoint& held);
  std::string run_path(const std::string& run) const;
  std::string place(const std::string& run) const;
  Result<> make_place(const std::string& run);
  Result<> write(const TrashEntry& entry, const TrashRecord& record);
  Result<> finish_interrupted();
  Result<> resume_demotion(const TrashEntry& entry);
  Result<> finish_demotion(const TrashEntry& entry, const std::string& manifest);
  Result<> resume_restoration(const TrashEntry& entry);
  Result<> finish_restoration(const TrashEntry& entry);
  Result<LockOutcome> restore_optimizer(const TrashEntry& entry, Time now, const std::string& by);
  Result<std::string> free_name(const std::string& run, const std::string& name);
  Result<LockOutcome> purge_one(const TrashEntry& entry, Time now, const std::string& by, bool recycled, Purged& out);
  Result<> make_way(const std::vector<TrashEntry>& going, std::uint64_t sets, std::set<RecycledSet>& kept, Purged& out);
  Result<std::uint64_t> retire(const TrashEntry& entry);
  Result<> forget_old(const std::vector<TrashEntry>& entries, Time now);

  Io& io_;
  std::string store_;
  /// Files that make a directory a checkpoint, ours first. A purge removes them first, so that half a checkpoint is
  /// never recognised.
  std::vector<std::string_view> markers_;
  std::vector<std::unique_ptr<HeldDirectory>> held_{};  // the store, and its trash
  std::unique_ptr<HeldLock> lock_;
  std::unique_ptr<ClaimFile> turn_;  // if the lock does not reach every host
  std::string reader_{};
  std::set<std::string> synced_{};  // runs whose place in the trash is durable
};

/// The contents of a store's recycle/.
/// errors  io
struct Recycled {
  std::uint64_t sets = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};
Result<Recycled> measure_recycled(Io& io, const std::string& store);

/// STORE/.ckpt/trash
std::string trash_path(const std::string& store);

}  // namespace ckpt::catalog
