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

  Result<> carry_out() {
    while (!to_list_.empty()) {
      const std::string run = *to_list_.begin();
      to_list_.erase(to_list_.begin());
      CKPT_CHECK(list_run(run));
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
    for (const TrashFolder::Item& item : folder.items) {
      if (!item.present) continue;
      const auto at = known.find(item.kept_as);
      const Stamp record = item.has_record ? stamp_of(io_, record_path(store_, run, item.kept_as)) : Stamp{};
      if (at != known.end() && !item.is_link && record.inode != 0 && record == at->second.record) {
        sum.add(at->second.waiting, now_);
        known.erase(at);
        continue;
      }
      const auto entry = read_trash_entry(io_, store_, run, item);
      if (entry && entry->recorded) {
        const KnownItem read{.waiting = waiting_of(entry->record),
                             .record = is_settled(record, now_) ? record : Stamp{}};
        store_item(run, item.kept_as, read);
        sum.add(read.waiting, now_);
        if (at != known.end()) known.erase(at);
      } else if (entry) {
        ++sum.unrecorded;
        settled = settled && (!item.has_record || item.is_link);  // it may be readable the next time
      }
    }
    for (const auto& [kept_as, item] : known) remove_item(run, kept_as);
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
      CKPT_CHECK(remove_run(database_, *known, {"trash", "trash_runs"}));
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

  void remove_item(const std::string& run, const std::string& kept_as) {
    SQLite::Statement& remove = database_.prepared("DELETE FROM trash WHERE run=?1 AND kept_as=?2");
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
    TrashRefresh work(io, store, database, now);
    CKPT_TRY(const bool due, work.is_due());
    if (due) {
      SQLite::Transaction transaction(database.sqlite(), SQLite::TransactionBehavior::IMMEDIATE);
      CKPT_CHECK(work.carry_out());
      transaction.commit();
    }
    return sum_of(database, run, now);
  });
  return out ? out : measure_trash(io, store, run, now);
}

Result<> forget_trash(Database& database) {
  return asked(database.file(), [&]() -> Result<> {
    database.sqlite().exec("DELETE FROM trash; DELETE FROM trash_runs");
    return {};
  });
}

}  // namespace ckpt::catalog
