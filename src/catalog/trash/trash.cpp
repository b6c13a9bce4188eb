#include "catalog/trash/trash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/protection.hpp"
#include "catalog/trash/place.hpp"
#include "catalog/trash/recycle.hpp"
#include "catalog/trash/strays.hpp"
#include "catalog/trash/whole.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/io/shared_bytes.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

using RecordState = TrashRecord::State;

constexpr auto kHistory = std::chrono::hours(24 * 365);  // how long the record of a purged checkpoint is kept
constexpr auto kTurnPoll = std::chrono::milliseconds(20);
constexpr auto kRunPatience = std::chrono::seconds(30);  // a save's commit takes milliseconds

/// The only deleter of a store, among all hosts: one that sees another's claim next to its own stops. Both of two may
/// stop; never do both continue.
struct Turn {
  std::unique_ptr<ClaimFile> claim{};
  std::string holder{};  ///< of the turn, if it is another's
};

Result<Turn> take_turn(Io& io, const std::string& store, Deadline deadline) {
  const std::string key = turn_key(store);
  for (unsigned n = 0;; ++n) {
    Turn out;
    CKPT_TRY(out.claim, ClaimFile::write(io, store, key));
    CKPT_TRY(const Claims claims, watch_claims(io, store));
    const FoundClaim* other = claims.holder({key}, out.claim->path());
    if (other == nullptr) return out;
    out.holder = other->name.who();
    out.claim.reset();
    if (std::chrono::steady_clock::now() >= deadline) return out;
    // Not in step with another that waits as long.
    std::this_thread::sleep_for(kTurnPoll * (1 + (io.host().self().pid + n) % 7));
  }
}

/// A pin or a reference made after the decision: anything that is or may be needed stays in the trash.
Result<> check_unpinned(Io& io, const std::string& path, const std::string& name, Time now) {
  return check_unprotected(io, path, marks_path(path, !CheckpointName::parse(name)), now);
}

}  // namespace

Deleter::Deleter(Io& io, std::string store, std::vector<std::string_view> markers, std::unique_ptr<HeldLock> lock,
                 std::unique_ptr<ClaimFile> turn)
    : io_(io), store_(std::move(store)), markers_(std::move(markers)), lock_(std::move(lock)), turn_(std::move(turn)) {}

Result<std::unique_ptr<Deleter>> Deleter::open(Io& io, const std::string& store, Deadline deadline,
                                               const ForeignNames& names) {
  const std::string path = trash_path(store);
  std::vector<std::unique_ptr<HeldDirectory>> held(2);
  CKPT_TRY(held[0], hold_store(io, store));
  CKPT_CHECK(make_directory(io, path));
  CKPT_TRY(held[1], hold_directory(io, path, {}));
  const auto busy = [&](const std::string& by) {
    return fail({.code = Errc::locked,
                 .message = fmt::format("{}: another process deletes in this store{}", path, by),
                 .file = path,
                 .hint = "wait for it to finish, or use --lock-timeout"});
  };
  auto lock = lock_run(io, path, deadline);
  if (!lock) return lock.error().code == Errc::locked ? busy("") : fail(std::move(lock).error());
  std::unique_ptr<ClaimFile> turn;
  if (io.lock_scope(path).reach != LockReach::everyone) {
    CKPT_TRY(Turn taken, take_turn(io, store, deadline));
    if (!taken.claim) return busy(": " + taken.holder);
    turn = std::move(taken.claim);
  } else if (!*lock) {
    return fail({.code = Errc::unsupported,
                 .message = path + ": this file system has no locks, so readers cannot be detected",
                 .file = path,
                 .hint = "nothing is deleted; mount it with cluster-wide locks"});
  }
  std::vector<std::string_view> markers{universal::kManifestPath, universal::kManifestCopyPath};
  markers.insert(markers.end(), names.markers.begin(), names.markers.end());
  std::unique_ptr<Deleter> trash(new Deleter(io, store, std::move(markers), *std::move(lock), std::move(turn)));
  trash->held_ = std::move(held);
  CKPT_CHECK(trash->finish_interrupted());
  return trash;
}

std::string Deleter::run_path(const std::string& run) const {
  return run == kStoreItself ? store_ : join_path(store_, run);
}

std::string Deleter::place(const std::string& run) const {
  return trash_of_run(store_, run);
}

Result<> Deleter::write(const TrashEntry& entry, const TrashRecord& record) {
  const std::string path = join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix));
  return replace_file(io_, path, record_text(record));
}

Result<LockedCheckpoint> Deleter::hold_here(const std::string& path, const Formerly& formerly) {
  io_.beat();
  CKPT_TRY(LockedCheckpoint held, lock_checkpoint(io_, path, formerly));
  reader_ = held.reader;
  return held;
}

/// After a rename into the trash: renames back if a reader started before it.
Result<> Deleter::give_back(const TrashEntry& entry, LockedCheckpoint& held) {
  auto looked = check_no_readers(io_, held);
  if (looked && held.outcome == LockOutcome::free) return {};
  reader_ = held.reader;
  const std::string record = join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix));
  auto back =
      move_checkpoint(io_, join_path(place(entry.run), entry.kept_as), join_path(run_path(entry.run), entry.name));
  if (!back) {
    return fail(Errc::not_done,
                fmt::format("{}/{}: in use; stays in the trash: {}", entry.run, entry.name, back.error().message));
  }
  CKPT_CHECK(std::move(looked));
  static_cast<void>(io_.unlink(record));  // useless without its checkpoint; the next one removes it
  return {};
}

/// Leftovers of a deletion that was not carried out, or of a restoration that was: a record without its checkpoint.
/// Half-purged ones are left to the next purge, and what cannot be listed to a process that can.
Result<> Deleter::finish_interrupted() {
  TrashFaults faults;
  CKPT_TRY(const auto entries, list_trash(io_, store_, TrashScope::all, &faults));
  for (const std::string& path : faults.unfinished) CKPT_CHECK(io_.unlink(path));
  for (const TrashEntry& entry : entries) {
    if (entry.recorded && entry.record.state == RecordState::restoring) {
      static_cast<void>(resume_restoration(entry));  // failures are left to the next process
      continue;
    }
    if (entry.present || !entry.recorded) continue;
    if (entry.record.state != RecordState::trashed && entry.record.state != RecordState::purging) continue;
    CKPT_TRY(const auto live, stat_if_present(io_, join_path(run_path(entry.run), entry.name)));
    if (live && entry.record.state == RecordState::trashed && !entry.record.dropped.empty()) {
      CKPT_CHECK(resume_demotion(entry));
      continue;
    }
    if (live && entry.record.state == RecordState::trashed) {
      CKPT_CHECK(io_.unlink(join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix))));
      CKPT_CHECK(io_.sync_dir(place(entry.run)));
      continue;
    }
    TrashRecord record = entry.record;
    record.state = RecordState::purged;
    CKPT_CHECK(write(entry, record));
  }
  return {};
}

/// Where its deletions go; there also after a power loss, though another process made it and came no further.
Result<> Deleter::make_place(const std::string& run) {
  if (synced_.contains(run)) return {};
  CKPT_CHECK(make_directory(io_, place(run)));
  CKPT_CHECK(sync_directories(io_, place(run), store_));
  synced_.insert(run);
  return {};
}

/// A name of which the trash holds no files: that of other systems' checkpoints may come again.
Result<std::string> Deleter::free_name(const std::string& run, const std::string& name) {
  std::string wish = name;
  for (unsigned n = 2;; ++n) {
    CKPT_TRY(const auto taken, stat_if_present(io_, join_path(place(run), wish)));
    if (!taken) return wish;
    wish = fmt::format("{}{}{}", name, kSecondMark, n);
  }
}

/// Locks a checkpoint to be deleted exclusively, if it has not changed since the decision.
Result<LockedCheckpoint> Deleter::hold_unchanged(const Deletion& deletion) {
  const std::string path = join_path(run_path(deletion.run), deletion.name);
  CKPT_TRY(LockedCheckpoint held, hold_here(path));
  if (held.outcome != LockOutcome::free || !deletion.still) return held;
  CKPT_TRY(const bool still, deletion.still(path));
  if (!still) held.outcome = LockOutcome::vanished;
  return held;
}

/// Writes the record, before anything is moved; `dropped`: of a class of its files, "" of all.
Result<TrashEntry> Deleter::announce(const Deletion& deletion, std::string_view dropped) {
  CKPT_CHECK(make_place(deletion.run));
  TrashEntry entry{.run = deletion.run, .name = deletion.name, .record = deletion.record};
  CKPT_TRY(entry.kept_as,
           free_name(deletion.run, dropped.empty() ? deletion.name : deletion.name + std::string(kOptimizerSuffix)));
  entry.record.state = RecordState::trashed;
  entry.record.dropped = dropped;
  entry.record.changed = entry.record.deleted;
  entry.record.changed_by = entry.record.by;
  CKPT_CHECK(write(entry, entry.record));
  return entry;
}

Result<LockOutcome> Deleter::put(const Deletion& deletion) {
  const std::string path = join_path(run_path(deletion.run), deletion.name);
  CKPT_TRY(LockedCheckpoint held, hold_unchanged(deletion));
  if (held.outcome != LockOutcome::free) return held.outcome;
  CKPT_TRY(const FileInfo info, io_.stat(path));
  if (info.kind == FileInfo::Kind::directory) {
    const bool ours = CheckpointName::parse(deletion.name).has_value();
    std::unique_ptr<HeldDirectory> whole;
    if (ours) {
      CKPT_TRY(whole, hold_whole(io_, path));
    }
    CKPT_CHECK(check_no_strays(ours ? find_strays(io_, path) : find_strays_in_foreign(io_, path)));
  }
  CKPT_TRY(const TrashEntry entry, announce(deletion, ""));
  auto moved = move_checkpoint(io_, path, join_path(place(deletion.run), entry.kept_as));
  if (!moved) {
    // An answer that was lost may have moved it: then the next process settles the record. Else nothing was deleted.
    const bool refused = moved.error().code != Errc::not_found && io_.stat(path) &&
                         !io_.stat(join_path(place(deletion.run), entry.kept_as));
    if (refused)
      static_cast<void>(io_.unlink(join_path(place(deletion.run), entry.kept_as + std::string(kRecordSuffix))));
    if (moved.error().system_code == EXDEV)
      return fail({.code = Errc::not_done,
                   .message = path + ": on another file system than the trash of its store, " + place(deletion.run),
                   .file = path});
    return fail(std::move(moved).error());
  }
  CKPT_CHECK(give_back(entry, held));
  return held.outcome;
}

Result<LockOutcome> Deleter::restore(const TrashEntry& entry, Time now, const std::string& by) {
  const std::string from = join_path(place(entry.run), entry.kept_as);
  const std::string run = run_path(entry.run);
  if (!entry.present && entry.record.state != RecordState::restoring)
    return fail(Errc::not_found, fmt::format("{}/{}: not in the trash", entry.run, entry.name));
  if (is_half_purged(entry)) {
    return fail(Errc::incomplete, fmt::format("{}/{}: being deleted permanently", entry.run, entry.name));
  }
  if (!entry.record.dropped.empty()) return restore_optimizer(entry, now, by);
  if (!entry.recorded && entry.name.ends_with(kOptimizerSuffix))
    return fail(Errc::io, fmt::format("{}/{}: its deletion record is unreadable", entry.run, entry.name));
  CKPT_TRY(const LockedCheckpoint held, hold_here(from, {.id = entry.record.id}));
  if (held.outcome != LockOutcome::free) return held.outcome;
  CKPT_CHECK(make_directory(io_, run));
  CKPT_CHECK(sync_directories(io_, run, store_));
  // While a save counts generations, none is restored between its listing of the run and that of the trash.
  CKPT_TRY(const auto generations, lock_run(io_, run, std::chrono::steady_clock::now() + kRunPatience));
  CKPT_CHECK(move_checkpoint(io_, from, join_path(run, entry.name)));
  if (!entry.recorded) return LockOutcome::free;
  TrashRecord record = entry.record;
  record.state = RecordState::restored;
  record.changed = now;
  record.changed_by = by;
  CKPT_CHECK(write(entry, record));
  return LockOutcome::free;
}

/// With `recycled` its data files go to recycle/.
Result<LockOutcome> Deleter::purge_one(const TrashEntry& entry, Time now, const std::string& by, bool recycled,
                                       Purged& out) {
  const std::string path = join_path(place(entry.run), entry.kept_as);
  CKPT_TRY(const LockedCheckpoint held,
           hold_here(path, {.id = entry.record.id, .path = join_path(run_path(entry.run), entry.name)}));
  if (held.outcome != LockOutcome::free) return held.outcome;
  // Everything in it is found below this one directory, whatever its owner does in the meantime.
  const bool ours = CheckpointName::parse(entry.name).has_value() && entry.record.dropped.empty();
  TrashRecord record = entry.record;
  std::unique_ptr<HeldDirectory> whole;
  CKPT_TRY(const FileInfo info, io_.stat(path));
  if (info.kind == FileInfo::Kind::directory) {
    CKPT_TRY(whole, ours ? hold_whole(io_, path) : hold_directory(io_, path, {.reads = true}));
    CKPT_CHECK(check_no_strays(!record.dropped.empty() ? find_strays_in_optimizer(io_, path)
                               : ours                  ? find_strays(io_, path)
                                                       : find_strays_in_foreign(io_, path)));
  }
  if (record.state != RecordState::purging && record.dropped.empty())
    CKPT_CHECK(check_unpinned(io_, path, entry.name, now));
  record.changed = now;
  record.changed_by = by;
  if (record.state != RecordState::purging || (recycled && !record.recycled)) {
    record.state = RecordState::purging;
    record.recycled = record.recycled || recycled;
    auto written = write(entry, record);
    if (!written && written.error().code == Errc::no_space && ours) {
      // The deletion frees the block that its record needs; without its second copy a checkpoint is still complete.
      auto gone = io_.unlink(join_path(path, universal::kManifestCopyPath));
      if (!gone && gone.error().code != Errc::not_found) return fail(std::move(gone).error());  // an earlier purge's
      CKPT_CHECK(io_.sync_dir(parent_path(join_path(path, universal::kManifestCopyPath))));
      written = write(entry, record);
    }
    CKPT_CHECK(std::move(written));
  }
  const std::uint64_t shared = SharedBytes(io_).next(path);
  for (const std::string_view marker : markers_) {
    auto gone = io_.unlink(join_path(path, marker));
    if (gone) {
      CKPT_CHECK(io_.sync_dir(parent_path(join_path(path, marker))));
    } else if (recycled && gone.error().code != Errc::not_found) {
      return fail(std::move(gone).error());  // no data file is taken while the rest looks like a checkpoint
    }
    // Most do not exist; other failures to remove show below.
  }
  std::uint64_t moved = 0;
  if (recycled) {
    CKPT_TRY(moved, retire(entry));
  }
  whole.reset();
  CKPT_CHECK(remove_tree(io_, path));
  CKPT_CHECK(io_.sync_dir(place(entry.run)));
  record.state = RecordState::purged;
  CKPT_CHECK(write(entry, record));
  out.gone.push_back(entry);
  out.bytes += record.bytes - std::min(record.bytes, moved + shared);
  out.recycled_count += moved != 0 ? 1 : 0;
  out.recycled_bytes += moved;
  return LockOutcome::free;
}

Result<Deleter::Purged> Deleter::purge(Time now, const std::string& by,
                                       const std::function<bool(const TrashEntry&)>& chosen,
                                       std::optional<std::uint64_t> recycled_sets, const std::atomic<bool>* stop) {
  TrashFaults faults;
  CKPT_TRY(const auto entries, list_trash(io_, store_, TrashScope::all, &faults));
  Purged out;
  for (const Unread& one : faults.unread) out.kept.push_back(one.error.message);
  std::vector<TrashEntry> going;
  for (const TrashEntry& entry : entries) {
    if (!entry.present) continue;
    if (!entry.recorded) {
      out.kept.push_back(fmt::format("{}/{}: its deletion record is unreadable", entry.run, entry.name));
      continue;
    }
    if (entry.record.state == RecordState::restoring) {
      out.kept.push_back(fmt::format("{}/{}: its optimizer is being restored", entry.run, entry.name));
      continue;
    }
    if (!is_half_purged(entry) && !chosen(entry)) continue;
    // Both names after a crash on a file system whose renames are not atomic: to remove the one would empty the other.
    CKPT_TRY(const auto live, stat_if_present(io_, join_path(run_path(entry.run), entry.name)));
    CKPT_TRY(const auto there, stat_if_present(io_, join_path(place(entry.run), entry.kept_as)));
    if (live && there && live->device == there->device && live->inode == there->inode) {
      out.kept.push_back(fmt::format("{}/{}: it also exists in its run", entry.run, entry.name));
      continue;
    }
    going.push_back(entry);
  }
  std::set<RecycledSet> kept;
  if (recycled_sets) CKPT_CHECK(make_way(going, *recycled_sets, kept, out));
  for (const TrashEntry& entry : going) {
    out.stopped = stop != nullptr && stop->load();
    if (out.stopped) return out;
    const bool recycled = can_recycle(entry) && kept.contains(set_of(entry));
    const auto purged = purge_one(entry, now, by, recycled, out);
    if (!purged) {
      out.kept.push_back(fmt::format("{}/{}: {}", entry.run, entry.name, purged.error().message));
    } else if (*purged != LockOutcome::free && *purged != LockOutcome::vanished) {
      const std::string reader = reader_.empty() ? reader_ : ": " + reader_;
      out.kept.push_back(fmt::format("{}/{}: being read{}", entry.run, entry.name, reader));
    }
  }
  CKPT_CHECK(forget_old(entries, now));
  return out;
}

void note_shared_steps(Io& io, const std::string& store, std::span<TrashEntry> entries, const ForeignNames& names) {
  std::map<std::string, std::map<std::uint64_t, std::set<std::string>>> saves;  // by run and step
  const auto note_live = [&](const std::string& run, const DirEntry& live) {
    const auto own = CheckpointName::parse(live.name);
    const auto step = own ? std::optional(own->step) : names.step_in(live);
    if (step) saves[run][*step].insert(live.name);
  };
  for (const TrashEntry& entry : entries) {
    if (!saves.contains(entry.run)) {
      if (const auto live = io.list(run_path(store, entry.run)))
        for (const DirEntry& one : *live) note_live(entry.run, one);
    }
    if (entry.recorded && entry.record.dropped.empty()) saves[entry.run][entry.record.step].insert(entry.name);
  }
  for (TrashEntry& entry : entries) {
    const auto& steps = saves[entry.run];
    const auto same = steps.find(entry.record.step);
    entry.shares_step = same != steps.end() && same->second.size() > (same->second.contains(entry.name) ? 1U : 0U);
  }
}

/// Old records; that of a run's greatest generation stays, so that no number is reused.
Result<> Deleter::forget_old(const std::vector<TrashEntry>& entries, Time now) {
  std::map<std::string, std::uint64_t> greatest;
  for (const TrashEntry& entry : entries) {
    const auto name = CheckpointName::parse(entry.name);
    std::uint64_t& most = greatest[entry.run];
    if (name) most = std::max(most, name->generation);
  }
  for (const TrashEntry& entry : entries) {
    const bool over = entry.record.state == RecordState::purged || entry.record.state == RecordState::restored;
    if (!entry.recorded || entry.present || !over || elapsed(entry.record.changed, now) < kHistory) continue;
    const auto name = CheckpointName::parse(entry.name);
    if (name && name->generation == greatest[entry.run]) continue;
    CKPT_CHECK(io_.unlink(join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix))));
  }
  return {};
}

}  // namespace ckpt::catalog
