#include "catalog/index/refresh.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "catalog/index/rows.hpp"
#include "catalog/index/sqlite.hpp"
#include "catalog/index/trash_index.hpp"
#include "engine/store/inbox.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

/// How many checkpoints a trusting refresh checks by directory and manifest anyway: the newest of each run.
/// Damage leaves no note, and jobs resume from these. A check takes microseconds, over a network some
/// hundred.
constexpr std::uint64_t kLookedAt = 256;

/// One refresh, inside its transaction.
class Refresh {
 public:
  Refresh(Io& io, const std::string& store, Database& database, const OtherTools& tools, Trust trust, Time now,
          std::uint64_t manifest_bytes)
      : io_(io),
        store_(store),
        database_(database),
        tools_(tools),
        trust_(trust),
        now_(now),
        manifest_bytes_(manifest_bytes) {}

  /// The paths to check; nothing if the index is current.
  Result<bool> is_due() {
    CKPT_TRY(known_, select_runs(database_));
    CKPT_CHECK(find_changed_runs());
    find_notes();
    const std::uint64_t share = std::max<std::uint64_t>(kLookedAt / std::max<std::size_t>(known_.size(), 1), 1);
    if (trust_ != Trust::nothing) CKPT_CHECK(find_changed_entries(trust_ == Trust::notes ? share : UINT64_MAX));
    return !to_list_.empty() || !gone_.empty() || !to_read_.empty();
  }

  Result<Refreshed> carry_out() {
    if (trust_ == Trust::nothing) CKPT_CHECK(forget_trash(database_));
    for (const std::string& run : gone_) CKPT_CHECK(remove_run(database_, run));
    while (!to_list_.empty()) {
      const std::string run = *to_list_.begin();
      to_list_.erase(to_list_.begin());
      CKPT_CHECK(list_run(run));
    }
    for (auto& [run, links] : links_) std::ranges::move(links, std::back_inserter(out_.links));
    return std::move(out_);
  }

  /// After the transaction is durable. A database in memory keeps notes: the next index needs them.
  void remove_notes() {
    if (!database_.is_file()) return;
    for (const InboxNote& note : notes_) static_cast<void>(io_.unlink(note.file));  // found again otherwise
  }

 private:
  const KnownRun* find_known(const std::string& run) const {
    const auto at = std::lower_bound(known_.begin(), known_.end(), run,
                                     [](const KnownRun& a, const std::string& b) { return a.run < b; });
    return at != known_.end() && at->run == run ? &*at : nullptr;
  }

  Result<> find_changed_runs() {
    if (find_known(".") == nullptr || trust_ == Trust::nothing) to_list_.insert(".");
    for (const KnownRun& run : known_) {
      const auto found = find_stamp(io_, run_path(store_, run.run));
      if (found && found->inode == 0) {
        gone_.push_back(run.run);
        continue;
      }
      const Stamp stamp = found.value_or(Stamp{});  // unreadable directories are listed
      if (run.settled && stamp == run.stamp && trust_ != Trust::nothing) continue;
      to_list_.insert(run.run);
      // A directory that was empty may have become another tool's checkpoint: its parent shows it.
      if (stamp != run.stamp && tools_.names.step_in(base_name(run.run))) to_list_.insert(run_above(run.run));
    }
    return {};
  }

  void find_notes() {
    notes_ = read_inbox(io_, store_);
    for (const InboxNote& note : notes_) {
      if (note.name.empty()) continue;
      to_read_[note.run].insert(note.name);
      // For a new run, the nearest known directory shows it.
      std::string run = note.run;
      while (run != "." && find_known(run) == nullptr) run = run_above(run);
      to_list_.insert(std::move(run));
    }
  }

  Result<> find_changed_entries(std::uint64_t newest) {
    for (const KnownRun& run : known_) {
      CKPT_TRY(const auto entries, select_known(database_, run.run, newest));
      for (const KnownEntry& entry : entries) {
        if (trust_ == Trust::notes ? is_same(run.run, entry) : is_as_read(run.run, entry)) continue;
        to_read_[run.run].insert(entry.name);
        to_list_.insert(run.run);
      }
    }
    return {};
  }

  /// Whether its directory and manifest are those that were read, by their times.
  bool is_same(const std::string& run, const KnownEntry& entry) {
    if (entry.foreign) return true;  // is_read_again looks
    const std::string path = join_path(run_path(store_, run), entry.name);
    return stamp_of(io_, path) == entry.directory &&
           stamp_of(io_, join_path(path, universal::kManifestPath)) == entry.manifest;
  }

  bool is_as_read(const std::string& run, const KnownEntry& entry) {
    if (!is_same(run, entry)) return false;
    const std::string path = join_path(run_path(store_, run), entry.name);
    const Stamp directory = stamp_of(io_, path);
    const Stamp marks = stamp_of(io_, marks_path(path, entry.foreign));
    if (directory != entry.directory || marks != entry.marks || !is_settled(directory, now_)) return false;
    return marks.inode == 0 || is_settled(marks, now_);
  }

  /// Whether one that the index knows must be read again, now that its run's directory was listed.
  bool is_read_again(const EntryPlace& place, const KnownEntry& known) {
    if (trust_ == Trust::nothing || place.foreign != known.foreign || known.unreadable) return true;
    const auto names = to_read_.find(place.run);
    if (names != to_read_.end() && names->second.contains(place.name)) return true;
    // Another tool leaves no notes: its files may change while their directory does not.
    if (place.foreign || place.trackers != known.trackers) return true;
    // Another one may have replaced it under the same name.
    return stamp_of(io_, join_path(run_path(store_, place.run), place.name)) != known.directory;
  }

  Result<> list_run(const std::string& run) {
    const Stamp stamp = stamp_of(io_, run_path(store_, run));
    const auto folder = list_folder(io_, store_, run, tools_);
    if (!folder) {
      if (run == ".") return fail(folder.error());
      // An unreadable directory says nothing about its contents: its rows stay.
      out_.unread.push_back({.run = run, .error = folder.error()});
      links_[run] = {{.run = run_above(run), .path = base_name(run), .unreadable = true}};
      return look_again(run_above(run));
    }
    if (!folder->has_value()) {
      if (run == ".")
        return fail({.code = Errc::not_found,
                     .message = run_path(store_, run) + ": no such directory",
                     .hint = "give the store with --store DIR"});
      return remove_run(database_, run);
    }
    links_[run] = (*folder)->links;
    CKPT_TRY(const bool all_read, list_places(run, (*folder)->places));
    CKPT_CHECK(list_below(run, **folder));
    // Other tools write into checkpoint directories and trackers without changing the run's directory, and targets of
    // links may change elsewhere. Unreadable entries may be readable the next time.
    const bool settled = is_settled(stamp, now_) && !(*folder)->is_restless && all_read;
    const KnownRun& stored =
        listed_[run] = {.run = run, .stamp = stamp, .settled = settled, .is_restless = (*folder)->is_restless};
    return store_run(database_, stored);
  }

  /// A directory that was listed now is listed again the next time.
  Result<> look_again(const std::string& run) {
    const auto listed = listed_.find(run);
    if (listed == listed_.end()) return {};
    listed->second.settled = false;
    return store_run(database_, listed->second);
  }

  /// False if one of them, or its marks, could not be read now.
  Result<bool> list_places(const std::string& run, const std::vector<EntryPlace>& places) {
    bool all_read = true;
    const KnownRun* before = find_known(run);
    const bool restless = before != nullptr && before->is_restless;
    CKPT_TRY(const auto known, select_known(database_, run, UINT64_MAX, restless));
    std::map<std::string, const KnownEntry*> left;
    for (const KnownEntry& entry : known) left.emplace(entry.name, &entry);
    for (const EntryPlace& place : places) {
      const auto at = left.find(place.name);
      if (at == left.end() || is_read_again(place, *at->second)) {
        CKPT_TRY(const bool read, read_place(place));
        all_read = all_read && read;
      }
      if (at != left.end()) left.erase(at);
    }
    for (const auto& [name, entry] : left) {
      CKPT_CHECK(remove_entry(database_, run, name));
      ++out_.removed;
    }
    return all_read;
  }

  /// New runs below this one, and runs that no longer exist.
  Result<> list_below(const std::string& run, const Folder& folder) {
    std::set<std::string> below;
    for (const std::string& name : folder.folders) below.insert(run_below(run, name));
    for (const KnownRun& known : known_) {
      if (known.run != "." && run_above(known.run) == run && !below.contains(known.run)) {
        CKPT_CHECK(remove_run(database_, known.run));
        std::erase_if(to_list_,
                      [&](const std::string& at) { return at == known.run || at.starts_with(known.run + "/"); });
      }
    }
    for (const std::string& name : below)
      if (find_known(name) == nullptr || trust_ == Trust::nothing) to_list_.insert(name);
    return {};
  }

  Result<bool> read_place(const EntryPlace& place) {
    const auto entry = read_entry(io_, store_, place, manifest_bytes_);
    ++out_.read;
    if (!entry) {
      CKPT_CHECK(remove_entry(database_, place.run, place.name));
      return true;
    }
    CKPT_CHECK(store_entry(database_, *entry));
    for (const std::string& link : entry->links)
      links_[place.run].push_back({.run = place.run, .holder = place.name, .path = link});
    const bool may_hold_links = place.foreign && entry->checkpoint.state == State::unreadable;
    if (may_hold_links) links_[place.run].push_back({.run = place.run, .path = place.name, .unreadable = true});
    const bool read = entry->checkpoint.state != State::unreadable && entry->checkpoint.state != State::repairable;
    return read && !entry->checkpoint.marks_unreadable;
  }

  Io& io_;
  const std::string& store_;
  Database& database_;
  const OtherTools& tools_;
  Trust trust_;
  Time now_;
  const std::uint64_t manifest_bytes_;
  std::vector<KnownRun> known_{};
  std::set<std::string> to_list_{};
  std::vector<std::string> gone_{};
  std::map<std::string, std::set<std::string>> to_read_{};
  std::vector<InboxNote> notes_{};
  std::map<std::string, std::vector<FoundLink>> links_{};  // by run
  std::map<std::string, KnownRun> listed_{};               // as stored
  Refreshed out_{};
};

}  // namespace

Result<Refreshed> refresh(Io& io, const std::string& store, Database& database, const OtherTools& tools, Trust trust,
                          Time now, std::uint64_t manifest_bytes) {
  Refresh work(io, store, database, tools, trust, now, manifest_bytes);
  CKPT_TRY(const bool due, work.is_due());
  if (!due) {
    work.remove_notes();
    return Refreshed{};
  }
  auto done = asked(database.file(), [&]() -> Result<Refreshed> {
    SQLite::Transaction transaction(database.sqlite(), SQLite::TransactionBehavior::IMMEDIATE);
    CKPT_TRY(Refreshed out, work.carry_out());
    transaction.commit();
    return out;
  });
  if (done) work.remove_notes();
  return done;
}

}  // namespace ckpt::catalog
