#include "catalog/index/rows.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "catalog/index/sqlite.hpp"
#include "engine/io/io.hpp"

namespace ckpt::catalog {
namespace {

// The order of take_row and of store_entry.
constexpr const char* kColumns =
    "run, name, id, series, series_from, series_after, generation, step, created, state, reason, bytes, optimizer_bytes, "
    "weights_bytes, optim_bytes, blobs_bytes, objects_bytes, index_bytes, files, format, is_foreign, layout, "
    "framework, "
    "parent, revision, plan_s, stage_s, write_s, ranks, marks_unreadable, is_link, inode, mtime_ns, marks_inode, "
    "marks_mtime_ns, manifest_inode, manifest_mtime_ns, referenced_files, referenced_bytes";
constexpr auto kOptimizer = static_cast<std::size_t>(universal::FileClass::optim);
constexpr const char* kTracker = "tracker";
constexpr const char* kSavedMetric = "saved";

std::optional<double> stored(double value) {
  if (value != value) return std::nullopt;  // SQLite has no NaN
  return value;
}

Entry take_row(Columns& row) {
  Entry entry;
  Checkpoint& checkpoint = entry.checkpoint;
  checkpoint.run = row.text();
  entry.name = row.text();
  checkpoint.id = row.text();
  checkpoint.series = row.natural();
  checkpoint.series_from = row.optional_natural();
  checkpoint.series_after = row.optional_natural();
  checkpoint.generation = row.natural();
  checkpoint.step = row.natural();
  checkpoint.created = row.time();
  checkpoint.state = row.state();
  entry.reason = row.text();
  checkpoint.bytes = row.natural();
  checkpoint.optimizer_bytes = row.natural();
  for (std::uint64_t& bytes : entry.class_bytes) bytes = row.natural();
  entry.file_count = row.natural();
  entry.format = row.text();
  entry.foreign = row.boolean();
  checkpoint.foreign = entry.foreign;
  entry.layout = row.text();
  entry.framework = row.text();
  entry.parent = row.text();
  entry.revision = row.natural();
  const auto plan_s = row.real();
  const auto stage_s = row.real();
  const auto write_s = row.real();
  const auto ranks = row.optional_natural();
  if (plan_s && stage_s && write_s && ranks)
    entry.save = SaveCost{.plan_s = *plan_s, .stage_s = *stage_s, .write_s = *write_s, .ranks = *ranks};
  checkpoint.marks_unreadable = row.boolean();
  checkpoint.link = row.boolean();
  entry.directory = row.stamp();
  entry.marks_directory = row.stamp();
  entry.manifest = row.stamp();
  entry.referenced_files = row.natural();
  entry.referenced_bytes = row.natural();
  checkpoint.is_virtual = entry.layout == "virtual";
  checkpoint.single_file = entry.layout == kSingleFile;
  take_commit_time(entry);
  return entry;
}

/// The rows of one checkpoint in the other tables, for many checkpoints in order.
class Details {
 public:
  explicit Details(SQLite::Database& database)
      : pins_(database, "SELECT name, owner, reason, at, until FROM pins WHERE checkpoint=?1 ORDER BY rowid"),
        states_(database, "SELECT state, name, at, owner, text, value FROM states WHERE checkpoint=?1 ORDER BY rowid"),
        marks_(database, "SELECT kind, name, text, owner, at, value FROM marks WHERE checkpoint=?1 ORDER BY rowid") {}

  /// Finds out which checkpoints have any: worth it where most rows of a large catalog are asked for.
  void find_all(SQLite::Database& database) {
    all_known_ = true;
    find_all(database, "SELECT DISTINCT checkpoint FROM pins", with_pins_);
    find_all(database, "SELECT DISTINCT checkpoint FROM states", with_states_);
    find_all(database, "SELECT DISTINCT checkpoint FROM marks", with_marks_);
  }

  void add_to(Entry& entry, std::int64_t checkpoint) {
    std::vector<Mark> marks;
    if (may_have(with_pins_, checkpoint))
      rows(pins_, checkpoint, [&](Columns& row) {
        Mark mark{.kind = Mark::Kind::pin, .name = row.text(), .text = {}, .owner = row.text()};
        mark.text = row.text();
        mark.at = row.optional_time();
        mark.until = row.optional_time();
        marks.push_back(std::move(mark));
      });
    if (may_have(with_states_, checkpoint))
      rows(states_, checkpoint, [&](Columns& row) {
        Mark mark{.kind = row.text() == "verified" ? Mark::Kind::verified : Mark::Kind::restored, .name = row.text()};
        mark.at = row.optional_time();
        mark.owner = row.text();
        mark.text = row.text();
        mark.value = row.number();
        marks.push_back(std::move(mark));
      });
    if (may_have(with_marks_, checkpoint))
      rows(marks_, checkpoint, [&](Columns& row) {
        const std::string kind = row.text();
        Mark mark{.kind = Mark::Kind::note, .name = row.text(), .text = row.text(), .owner = row.text()};
        mark.at = row.optional_time();
        mark.value = row.number();
        if (kind == kTracker) {
          entry.checkpoint.trackers.push_back(mark.name);
        } else if (kind == kSavedMetric) {
          entry.checkpoint.metrics.emplace_back(mark.name, mark.value);
        } else {
          mark.kind = kind_of(kind);
          marks.push_back(std::move(mark));
        }
      });
    apply_marks(entry, std::move(marks));
  }

 private:
  static Mark::Kind kind_of(const std::string& name) {
    for (const Mark::Kind kind : {Mark::Kind::tag, Mark::Kind::metric, Mark::Kind::reference})
      if (kind_name(kind) == name) return kind;
    return Mark::Kind::note;
  }
  template <class Take>
  static void rows(SQLite::Statement& statement, std::int64_t checkpoint, Take&& take) {
    statement.reset();
    statement.bind(1, checkpoint);
    while (statement.executeStep()) {
      Columns row(statement);
      take(row);
    }
  }

  using Ids = std::unordered_set<std::int64_t>;
  static void find_all(SQLite::Database& database, const char* words, Ids& out) {
    SQLite::Statement select(database, words);
    while (select.executeStep()) out.insert(Columns(select).integer());
  }
  bool may_have(const Ids& ids, std::int64_t checkpoint) const { return !all_known_ || ids.contains(checkpoint); }

  bool all_known_ = false;
  Ids with_pins_{};
  Ids with_states_{};
  Ids with_marks_{};
  SQLite::Statement pins_;
  SQLite::Statement states_;
  SQLite::Statement marks_;
};

/// The words of a query, with ?1, ?2, ... in the order of `bind_query`.
std::string where_text(const Query& query) {
  std::string out;
  int parameter = 0;
  const auto add = [&](const std::string& condition) { out += (out.empty() ? " WHERE " : " AND ") + condition; };
  const auto next = [&] { return "?" + std::to_string(++parameter); };
  if (query.run) add("run=" + next());
  if (query.name) add("name=" + next());
  if (query.step) add("step=" + next());
  if (!query.id_prefix.empty()) {
    add("id>=" + next());
    add("id<" + next());
  }
  if (!query.tag.empty()) add("checkpoint IN (SELECT checkpoint FROM marks WHERE kind='tag' AND name=" + next() + ")");
  return out;
}

void bind_query(SQLite::Statement& statement, const Query& query) {
  Binder binder(statement);
  if (query.run) binder.add(*query.run);
  if (query.name) binder.add(*query.name);
  if (query.step) binder.add(*query.step);
  if (!query.id_prefix.empty()) binder.add(query.id_prefix).add(query.id_prefix + "g");  // after every digit
  if (!query.tag.empty()) binder.add(query.tag);
}

/// Metrics of the manifest that no mark replaces.
bool is_saved_metric(const Entry& entry, const std::string& name) {
  for (const Mark& mark : entry.marks)
    if (mark.kind == Mark::Kind::metric && mark.name == name) return false;
  return true;
}

void insert_details(Database& database, const Entry& entry, std::int64_t checkpoint) {
  const auto put_mark = [&](std::string_view kind, const Mark& mark) {
    SQLite::Statement& insert = database.prepared("INSERT INTO marks VALUES (?1,?2,?3,?4,?5,?6,?7)");
    Binder(insert)
        .add(checkpoint)
        .add(std::string(kind))
        .add(mark.name)
        .add(mark.text)
        .add(mark.owner)
        .add(mark.at)
        .add(stored(mark.value));
    insert.exec();
  };
  for (const std::string& tracker : entry.checkpoint.trackers) put_mark(kTracker, {.name = tracker});
  for (const auto& [name, value] : entry.checkpoint.metrics)
    if (is_saved_metric(entry, name)) put_mark(kSavedMetric, {.name = name, .value = value});
  for (const Mark& mark : entry.marks) {
    if (mark.kind == Mark::Kind::pin) {
      SQLite::Statement& insert = database.prepared("INSERT INTO pins VALUES (?1,?2,?3,?4,?5,?6)");
      Binder(insert).add(checkpoint).add(mark.name).add(mark.owner).add(mark.text).add(mark.at).add(mark.until);
      insert.exec();
    } else if (mark.kind == Mark::Kind::verified || mark.kind == Mark::Kind::restored) {
      SQLite::Statement& insert = database.prepared("INSERT INTO states VALUES (?1,?2,?3,?4,?5,?6,?7)");
      Binder(insert)
          .add(checkpoint)
          .add(std::string(kind_name(mark.kind)))
          .add(mark.name)
          .add(mark.at)
          .add(mark.owner)
          .add(mark.text)
          .add(stored(mark.value));
      insert.exec();
    } else {
      put_mark(kind_name(mark.kind), mark);
    }
  }
}

void insert_row(SQLite::Statement& insert, const Entry& entry) {
  const Checkpoint& checkpoint = entry.checkpoint;
  Binder row(insert);
  row.add(checkpoint.run).add(entry.name).add(checkpoint.id).add(checkpoint.series).add(checkpoint.series_from);
  row.add(checkpoint.series_after).add(checkpoint.generation).add(checkpoint.step).add(checkpoint.created);
  row.add(static_cast<std::uint64_t>(checkpoint.state)).add(entry.reason);
  row.add(checkpoint.bytes).add(checkpoint.optimizer_bytes);
  for (const std::uint64_t bytes : entry.class_bytes) row.add(bytes);
  row.add(entry.file_count).add(entry.format).add(entry.foreign).add(entry.layout).add(entry.framework);
  row.add(entry.parent).add(entry.revision);
  const auto cost = [&](double SaveCost::*member) {
    row.add(entry.save ? std::optional((*entry.save).*member) : std::nullopt);
  };
  cost(&SaveCost::plan_s);
  cost(&SaveCost::stage_s);
  cost(&SaveCost::write_s);
  row.add(entry.save ? std::optional(entry.save->ranks) : std::nullopt);
  row.add(checkpoint.marks_unreadable).add(checkpoint.link);
  row.add(entry.directory).add(entry.marks_directory).add(entry.manifest);
  row.add(entry.referenced_files).add(entry.referenced_bytes);
  insert.exec();
}

std::string placeholders() {
  constexpr int kColumnCount = 39;
  std::string out = "?1";
  for (int i = 2; i <= kColumnCount; ++i) out += ",?" + std::to_string(i);
  return out;
}

}  // namespace

Result<std::vector<std::string>> runs_with_entries(Database& database) {
  return asked(database.file(), [&]() -> Result<std::vector<std::string>> {
    std::vector<std::string> out;
    SQLite::Statement next(database.sqlite(), "SELECT run FROM checkpoints WHERE run>?1 ORDER BY run LIMIT 1");
    for (std::string last;; last = out.back()) {
      next.reset();
      Binder(next).add(last);
      if (!next.executeStep()) return out;
      std::string run = Columns(next).text();
      if (run <= last) return fail({.code = Errc::corrupt, .message = database.file() + ": its index is out of order"});
      out.push_back(std::move(run));
    }
  });
}

/// Those that another tool saved of one step: the newest first, as committed_before has it.
void sort_equal_ones(std::vector<Entry>::iterator begin, std::vector<Entry>::iterator end) {
  const auto order = [](const Entry& entry) {
    const Checkpoint& one = entry.checkpoint;
    return std::tuple(one.series, one.step, one.generation);
  };
  while (begin != end) {
    const auto next = std::find_if(begin, end, [&](const Entry& entry) { return order(entry) != order(*begin); });
    if (next - begin > 1)
      std::sort(begin, next, [](const Entry& a, const Entry& b) { return a.checkpoint.id > b.checkpoint.id; });
    begin = next;
  }
}

Result<std::vector<Entry>> select_entries(Database& database, const Query& query) {
  return asked(database.file(), [&]() -> Result<std::vector<Entry>> {
    // A row and its marks are of different tables: a refresh between their statements would separate them.
    const Snapshot snapshot(database.sqlite());
    // One run after the other, as no index has runs ascending and in each the newest first.
    std::vector<std::string> runs;
    const bool narrow = query.name || query.step || !query.id_prefix.empty() || !query.tag.empty();
    if (query.run) {
      runs.push_back(*query.run);
    } else if (!narrow) {
      CKPT_TRY(runs, runs_with_entries(database));
    }
    std::uint64_t known_count = 0;
    if (query.limit == UINT64_MAX && !narrow && !query.passes) {
      CKPT_TRY(known_count, count_entries(database));
    }
    std::vector<Entry> out;
    out.reserve(static_cast<std::size_t>(known_count));
    Query one = query;
    if (!runs.empty()) one.run.emplace();
    // The index has names where equal ones go by id. If all of a run are requested, they are sorted afterwards: sorting whole
    // rows takes longer than reading them.
    const bool sorted_later = !runs.empty() && query.limit == UINT64_MAX;
    SQLite::Statement select(database.sqlite(), std::string("SELECT ") + kColumns + ", checkpoint FROM checkpoints" +
                                                    where_text(one) +
                                                    " ORDER BY run, series DESC, step DESC, generation DESC, " +
                                                    (sorted_later ? "name DESC" : "id DESC"));
    Details details(database.sqlite());
    if (query.limit == UINT64_MAX && !narrow) details.find_all(database.sqlite());
    const auto take_all = [&] {
      select.reset();
      bind_query(select, one);
      while (out.size() < query.limit && select.executeStep()) {
        Columns row(select);
        Entry entry = take_row(row);
        details.add_to(entry, row.integer());
        entry.checkpoint.attributes.reserve(2);
        entry.checkpoint.attributes.emplace_back("format", entry.format);
        if (!entry.foreign)
          entry.checkpoint.attributes.emplace_back("kind", entry.class_bytes[kOptimizer] == 0 ? "weights" : "full");
        if (!query.passes || query.passes(entry)) out.push_back(std::move(entry));
      }
    };
    if (runs.empty() && narrow) take_all();
    for (std::string& run : runs) {
      one.run = std::move(run);
      const auto first = static_cast<std::ptrdiff_t>(out.size());
      take_all();
      if (sorted_later) sort_equal_ones(out.begin() + first, out.end());
    }
    return out;
  });
}

Result<std::uint64_t> count_entries(Database& database) {
  return asked(database.file(), [&]() -> Result<std::uint64_t> {
    return static_cast<std::uint64_t>(database.sqlite().execAndGet("SELECT count(*) FROM checkpoints").getInt64());
  });
}

Result<> store_entry(Database& database, const Entry& entry) {
  CKPT_CHECK(remove_entry(database, entry.checkpoint.run, entry.name));
  return asked(database.file(), [&]() -> Result<> {
    SQLite::Statement& insert =
        database.prepared(std::string("INSERT INTO checkpoints (") + kColumns + ") VALUES (" + placeholders() + ")");
    insert_row(insert, entry);
    insert_details(database, entry, database.sqlite().getLastInsertRowid());
    return {};
  });
}

Result<> remove_entry(Database& database, const std::string& run, const std::string& name) {
  return asked(database.file(), [&]() -> Result<> {
    SQLite::Statement& remove = database.prepared("DELETE FROM checkpoints WHERE run=?1 AND name=?2");
    Binder(remove).add(run).add(name);
    remove.exec();
    return {};
  });
}

Result<std::vector<KnownRun>> select_runs(Database& database) {
  return asked(database.file(), [&]() -> Result<std::vector<KnownRun>> {
    std::vector<KnownRun> out;
    SQLite::Statement select(database.sqlite(),
                             "SELECT run, inode, mtime_ns, settled, has_foreign FROM runs ORDER BY run");
    while (select.executeStep()) {
      Columns row(select);
      KnownRun run{.run = row.text()};
      run.stamp = row.stamp();
      run.settled = row.boolean();
      run.is_restless = row.boolean();
      out.push_back(std::move(run));
    }
    return out;
  });
}

Result<> store_run(Database& database, const KnownRun& run) {
  return asked(database.file(), [&]() -> Result<> {
    SQLite::Statement& insert = database.prepared("INSERT OR REPLACE INTO runs VALUES (?1,?2,?3,?4,?5)");
    Binder(insert).add(run.run).add(run.stamp).add(run.settled).add(run.is_restless);
    insert.exec();
    return {};
  });
}

Result<> remove_run(Database& database, const std::string& run, std::initializer_list<const char*> tables) {
  return asked(database.file(), [&]() -> Result<> {
    // Runs below begin with "RUN/"; '0' is the byte after '/'.
    for (const std::string table : tables) {
      SQLite::Statement& remove = database.prepared("DELETE FROM " + table + " WHERE run=?1 OR (run>=?2 AND run<?3)");
      Binder(remove).add(run).add(run + "/").add(run + "0");
      remove.exec();
    }
    return {};
  });
}

Result<> remove_run(Database& database, const std::string& run) {
  return remove_run(database, run, {"checkpoints", "runs"});
}

Result<std::vector<KnownEntry>> select_known(Database& database, const std::string& run, std::uint64_t newest,
                                             bool with_trackers) {
  return asked(database.file(), [&]() -> Result<std::vector<KnownEntry>> {
    std::vector<KnownEntry> out;
    SQLite::Statement select(
        database.sqlite(),
        "SELECT name, is_foreign, inode, mtime_ns, marks_inode, marks_mtime_ns, "
        "manifest_inode, manifest_mtime_ns, state IN (1, 2) OR marks_unreadable, checkpoint "
        "FROM checkpoints WHERE run=?1 ORDER BY series DESC, step DESC, generation DESC, name DESC "
        "LIMIT ?2");
    SQLite::Statement trackers(database.sqlite(),
                               "SELECT name FROM marks WHERE checkpoint=?1 AND kind='tracker' ORDER BY rowid");
    Binder(select).add(run).add(std::min<std::uint64_t>(newest, INT64_MAX));
    while (select.executeStep()) {
      Columns row(select);
      KnownEntry entry{.name = row.text(), .foreign = row.boolean()};
      entry.directory = row.stamp();
      entry.marks = row.stamp();
      entry.manifest = row.stamp();
      entry.unreadable = row.boolean();
      const std::int64_t checkpoint = row.integer();
      if (with_trackers) {
        trackers.reset();
        trackers.bind(1, checkpoint);
        while (trackers.executeStep()) entry.trackers.push_back(Columns(trackers).text());
      }
      out.push_back(std::move(entry));
    }
    return out;
  });
}

std::string newest_first(Database& database, const std::string& run) {
  SQLite::Statement& foreign =
      database.prepared("SELECT 1 FROM checkpoints WHERE run=?1 AND generation=0 LIMIT 1");  // an index has both
  Binder(foreign).add(run);
  const bool by_step = foreign.executeStep();
  foreign.reset();
  return by_step ? "ORDER BY series DESC, step DESC, generation DESC, id DESC"
                 : "ORDER BY generation DESC, step DESC, id DESC";
}

}  // namespace ckpt::catalog
