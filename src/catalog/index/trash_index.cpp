#include "catalog/index/trash_index.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "catalog/index/rows.hpp"
#include "catalog/index/sqlite.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/scan.hpp"
#include "catalog/trash/place.hpp"

namespace ckpt::catalog {
namespace {

/// The content of one record.
struct KnownItem {
  Waiting waiting{};
  Stamp record{};  ///< inode 0: to be read again
};

/// Stores the trash as it is now in the tables, inside their transaction.
class TrashRefresh {
 public:
  TrashRefresh(Io& io, const std::string& store, Database& database, Time now)
      : io_(io), store_(store), database_(database), now_(now) {}

  Result<bool> is_due() {
    SQLite::Statement select(database_.sqlite(), "SELECT run, inode, mtime_ns, settled FROM trash_runs ORDER BY run");
    while (select.executeStep()) {
      Columns row(select);
      std::string run = row.text();
      const Stamp known = row.stamp();
      const bool settled = row.boolean();
      const auto stamp = find_stamp(io_, trash_of_run(store_, run));
      const bool is_gone = stamp && stamp->inode == 0;
      // For a directory that is gone, its parent shows it.
      if (!settled || !stamp || *stamp != known) to_list_.insert(is_gone ? run_above(run) : run);
      runs_.insert(std::move(run));
    }
    if (!runs_.contains(std::string(kStoreItself))) to_list_.emplace(kStoreItself);
    return !to_list_.empty();
  }

  /// Whether what is known of one run is what its directory holds.
  Result<bool> is_current(const std::string& run) {
    SQLite::Statement select(database_.sqlite(), "SELECT inode, mtime_ns FROM trash_runs WHERE run=?1 AND settled=1");
    Binder(select).add(run);
    if (!select.executeStep()) return false;
    CKPT_TRY(const Stamp stamp, find_stamp(io_, trash_of_run(store_, run)));
    return stamp.inode != 0 && stamp == Columns(select).stamp();
  }

  /// `wanted`: the run asked for, or "" for all; what cannot be listed of others is left for the next time.
  Result<> carry_out(const std::string& wanted) {
    while (!to_list_.empty()) {
      const std::string run = *to_list_.begin();
      to_list_.erase(to_list_.begin());
      auto listed = list_run(run);
      const bool concerns = wanted.empty() || run == kStoreItself || wanted == run || wanted.starts_with(run + "/");
      if (!listed && concerns) return listed;
    }
    return {};
  }

 private:
  Result<> list_run(const std::string& run) {
    const Stamp stamp = stamp_of(io_, trash_of_run(store_, run));
    CKPT_TRY(const TrashFolder folder, list_trash_folder(io_, store_, run));
    bool settled = stamp.inode != 0 && is_settled(stamp, now_);
    std::map<std::string, KnownItem> known = items_of(run);
    InTrash sum;
    std::map<std::string, Stamp> births = births_of(run);
    for (const TrashFolder::Item& item : folder.items) {
      const Stamp record = item.has_record ? stamp_of(io_, record_path(store_, run, item.kept_as)) : Stamp{};
      const auto is_known = [&](const Stamp& read) { return !item.is_link && record.inode != 0 && record == read; };
      const auto birth = births.find(item.kept_as);
      const bool is_birth_known = birth != births.end() && is_known(birth->second);
      if (is_birth_known) births.erase(birth);
      const auto at = known.find(item.kept_as);
      if (item.present && is_birth_known && at != known.end() && is_known(at->second.record)) {
        sum.add(at->second.waiting, now_);
        known.erase(at);
        continue;
      }
      if (!item.present && (is_birth_known || !item.has_record)) continue;
      const auto entry = read_trash_entry(io_, store_, run, item);
      if (entry && entry->recorded && !is_birth_known) {
        store_birth(birth_of(*entry), item.kept_as, is_settled(record, now_) ? record : Stamp{});
        births.erase(item.kept_as);
      }
      if (entry && !entry->recorded)
        settled = settled && (!item.has_record || item.is_link);  // it may be readable the next time
      if (!item.present) continue;
      if (entry && entry->recorded) {
        const KnownItem read{.waiting = waiting_of(entry->record),
                             .record = is_settled(record, now_) ? record : Stamp{}};
        store_item(run, item.kept_as, read);
        sum.add(read.waiting, now_);
        if (at != known.end()) known.erase(at);
      } else if (entry) {
        ++sum.unrecorded;
      }
    }
    for (const auto& [kept_as, item] : known)
      remove_item("DELETE FROM trash WHERE run=?1 AND kept_as=?2", run, kept_as);
    for (const auto& [kept_as, record] : births)
      remove_item("DELETE FROM trash_series WHERE run=?1 AND kept_as=?2", run, kept_as);
    store_sum(run, stamp, settled, sum);
    return list_below(run, folder);
  }

  /// New directories below this one, and directories that no longer exist.
  Result<> list_below(const std::string& run, const TrashFolder& folder) {
    const std::set<std::string> below(folder.below.begin(), folder.below.end());
    for (auto known = runs_.begin(); known != runs_.end();) {
      if (*known == kStoreItself || run_above(*known) != run || below.contains(*known)) {
        ++known;
        continue;
      }
      CKPT_CHECK(remove_run(database_, *known, {"trash", "trash_runs", "trash_series"}));
      std::erase_if(to_list_, [&](const std::string& at) { return at == *known || at.starts_with(*known + "/"); });
      known = runs_.erase(known);
    }
    for (const std::string& name : below)
      if (runs_.insert(name).second) to_list_.insert(name);
    return {};
  }

  std::map<std::string, KnownItem> items_of(const std::string& run) {
    SQLite::Statement select(database_.sqlite(),
                             "SELECT kept_as, is_optimizer, bytes, purge_at, purging, inode, mtime_ns FROM trash "
                             "WHERE run=?1 ORDER BY kept_as");
    Binder(select).add(run);
    std::map<std::string, KnownItem> out;
    while (select.executeStep()) {
      Columns row(select);
      std::string kept_as = row.text();
      KnownItem item;
      item.waiting.is_optimizer = row.boolean();
      item.waiting.bytes = row.natural();
      item.waiting.purge_at = row.time();
      item.waiting.purging = row.boolean();
      item.record = row.stamp();
      out.emplace_hint(out.end(), std::move(kept_as), item);
    }
    return out;
  }

  /// Which records were read for their series, and what they were then.
  std::map<std::string, Stamp> births_of(const std::string& run) {
    SQLite::Statement select(database_.sqlite(),
                             "SELECT kept_as, inode, mtime_ns FROM trash_series WHERE run=?1 ORDER BY kept_as");
    Binder(select).add(run);
    std::map<std::string, Stamp> out;
    while (select.executeStep()) {
      Columns row(select);
      std::string kept_as = row.text();
      out.emplace_hint(out.end(), std::move(kept_as), row.stamp());
    }
    return out;
  }

  void store_birth(const SeriesBirth& birth, const std::string& kept_as, const Stamp& record) {
    SQLite::Statement& insert = database_.prepared("INSERT OR REPLACE INTO trash_series VALUES (?1,?2,?3,?4,?5,?6,?7)");
    Binder(insert).add(birth.run).add(kept_as).add(birth.series).add(birth.from).add(birth.after).add(record);
    insert.exec();
  }

  void store_item(const std::string& run, const std::string& kept_as, const KnownItem& item) {
    SQLite::Statement& insert = database_.prepared("INSERT OR REPLACE INTO trash VALUES (?1,?2,?3,?4,?5,?6,?7,?8)");
    const Waiting& waiting = item.waiting;
    Binder(insert)
        .add(run)
        .add(kept_as)
        .add(waiting.is_optimizer)
        .add(waiting.bytes)
        .add(waiting.purge_at)
        .add(waiting.purging)
        .add(item.record);
    insert.exec();
  }

  void remove_item(const char* words, const std::string& run, const std::string& kept_as) {
    SQLite::Statement& remove = database_.prepared(words);
    Binder(remove).add(run).add(kept_as);
    remove.exec();
  }

  void store_sum(const std::string& run, const Stamp& stamp, bool settled, const InTrash& sum) {
    SQLite::Statement& insert =
        database_.prepared("INSERT OR REPLACE INTO trash_runs VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)");
    Binder(insert)
        .add(run)
        .add(stamp)
        .add(settled)
        .add(sum.checkpoints)
        .add(sum.optimizers)
        .add(sum.bytes)
        .add(sum.first_over)
        .add(sum.last_over)
        .add(sum.unrecorded);
    insert.exec();
  }

  Io& io_;
  const std::string& store_;
  Database& database_;
  Time now_;
  std::set<std::string> runs_{};
  std::set<std::string> to_list_{};
};

/// The tables become what the trash of a run ("": of all) is.
Result<> refresh_trash(Io& io, const std::string& store, Database& database, const std::string& run, Time now) {
  TrashRefresh work(io, store, database, now);
  CKPT_TRY(const bool current, run.empty() ? Result<bool>(false) : work.is_current(run));
  if (current) return {};
  CKPT_TRY(const bool due, work.is_due());
  if (!due) return {};
  SQLite::Transaction transaction(database.sqlite(), SQLite::TransactionBehavior::IMMEDIATE);
  CKPT_CHECK(work.carry_out(run));
  transaction.commit();
  return {};
}

std::vector<SeriesBirth> births_in(Database& database, const std::string& run) {
  SQLite::Statement select(database.sqlite(),
                           "SELECT run, series, max(series_from), max(series_after) FROM trash_series "
                           "WHERE series_from IS NOT NULL AND (?1='' OR run=?1) GROUP BY run, series");
  Binder(select).add(run);
  std::vector<SeriesBirth> out;
  while (select.executeStep()) {
    Columns row(select);
    SeriesBirth birth{.run = row.text(), .series = row.natural()};
    birth.from = row.optional_natural();
    birth.after = row.optional_natural();
    out.push_back(std::move(birth));
  }
  return out;
}

/// From the tables alone.
InTrash sum_of(Database& database, const std::string& run, Time now) {
  InTrash out;
  SQLite::Statement select(database.sqlite(),
                           "SELECT run, checkpoints, optimizers, bytes, first_over, last_over, unrecorded "
                           "FROM trash_runs WHERE ?1='' OR run=?1");
  SQLite::Statement over(database.sqlite(),
                         "SELECT (SELECT count(*) FROM trash WHERE run=?1 AND purging=1) + "
                         "(SELECT count(*) FROM trash WHERE run=?1 AND purging=0 AND purge_at<=?2)");
  Binder(select).add(run);
  while (select.executeStep()) {
    Columns row(select);
    over.reset();
    Binder(over).add(row.text()).add(now);
    if (over.executeStep()) out.over += Columns(over).natural();
    out.checkpoints += row.natural();
    out.optimizers += row.natural();
    const std::uint64_t bytes = row.natural();
    out.bytes += std::min(bytes, UINT64_MAX - out.bytes);
    const auto first = row.optional_time();
    const auto last = row.optional_time();
    if (first) out.first_over = std::min(out.first_over.value_or(*first), *first);
    if (last) out.last_over = std::max(out.last_over.value_or(*last), *last);
    out.unrecorded += row.natural();
  }
  return out;
}

}  // namespace

Result<InTrash> measure_indexed_trash(Io& io, const std::string& store, Database& database, const std::string& run,
                                      Time now) {
  auto out = asked(database.file(), [&]() -> Result<InTrash> {
    CKPT_CHECK(refresh_trash(io, store, database, "", now));
    return sum_of(database, run, now);
  });
  return out ? out : measure_trash(io, store, run, now);
}

Result<std::vector<SeriesBirth>> indexed_births(Io& io, const std::string& store, Database& database,
                                                const std::string& run, Time now) {
  // Where nothing was ever deleted, one look says so.
  const auto trash = io.stat(run.empty() ? trash_path(store) : trash_of_run(store, run));
  if (!trash && trash.error().code == Errc::not_found) return std::vector<SeriesBirth>();
  auto out = asked(database.file(), [&]() -> Result<std::vector<SeriesBirth>> {
    CKPT_CHECK(refresh_trash(io, store, database, run, now));
    return births_in(database, run);
  });
  if (out) return out;
  if (!run.empty()) return births_in_trash(io, store, run);
  CKPT_TRY(const auto entries, list_trash(io, store));
  return births_of(entries);
}

Result<> forget_trash(Database& database) {
  return asked(database.file(), [&]() -> Result<> {
    database.sqlite().exec("DELETE FROM trash; DELETE FROM trash_runs; DELETE FROM trash_series");
    return {};
  });
}

}  // namespace ckpt::catalog
