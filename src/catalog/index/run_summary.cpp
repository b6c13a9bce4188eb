#include "catalog/index/run_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "catalog/index/rows.hpp"
#include "catalog/index/sqlite.hpp"

namespace ckpt::catalog {
namespace {

/// Of summaries in the order of their runs, that of a run; null if there is none. `at`: the last one that was found.
RunSummary* find_summary(std::vector<RunSummary>& summaries, std::size_t& at, const std::string& run) {
  while (at < summaries.size() && summaries[at].run < run) ++at;
  return at < summaries.size() && summaries[at].run == run ? &summaries[at] : nullptr;
}

void add_verifications(Database& database, std::vector<RunSummary>& out) {
  SQLite::Statement select(database.sqlite(),
                           "SELECT run, max(states.at) FROM states JOIN checkpoints USING (checkpoint) "
                           "WHERE states.state='verified' GROUP BY run ORDER BY run");
  for (std::size_t at = 0; select.executeStep();) {
    Columns row(select);
    RunSummary* summary = find_summary(out, at, row.text());
    if (summary != nullptr) summary->last_verified = row.optional_time();
  }
}

/// Of complete checkpoints. In SQLite the other columns of a row with min() or max() are those of the row it came from.
void add_metrics(Database& database, std::vector<RunSummary>& out) {
  for (const bool lowest : {true, false}) {
    SQLite::Statement select(
        database.sqlite(),
        fmt::format("SELECT run, marks.name, {}(value), step FROM marks JOIN checkpoints USING (checkpoint) "
                    "WHERE kind IN ('metric', 'saved') AND value>-9e999 AND value<9e999 AND checkpoints.state>={} "
                    "GROUP BY run, marks.name ORDER BY run, marks.name",
                    lowest ? "min" : "max", static_cast<int>(State::committed)));
    std::size_t metric = 0;
    for (std::size_t at = 0; select.executeStep();) {
      Columns row(select);
      const std::size_t before = at;
      RunSummary* summary = find_summary(out, at, row.text());
      if (summary == nullptr) continue;
      if (before != at) metric = 0;
      if (lowest) {
        RunSummary::Metric& one = summary->metrics.emplace_back();
        one.name = row.text();
        one.lowest = row.number();
        one.lowest_step = row.natural();
      } else {
        row.text();
        RunSummary::Metric& one = summary->metrics[metric++];
        one.highest = row.number();
        one.highest_step = row.natural();
      }
    }
  }
}

}  // namespace

Result<std::vector<RunSummary>> summarise_runs(Database& database) {
  CKPT_TRY(std::vector<std::string> runs, runs_with_entries(database));
  return asked(database.file(), [&]() -> Result<std::vector<RunSummary>> {
    const Snapshot snapshot(database.sqlite());
    std::vector<RunSummary> out;
    // In the order of the index, so that no table is read.
    SQLite::Statement select(database.sqlite(),
                             "SELECT step, state, bytes, series FROM checkpoints WHERE run=?1 "
                             "ORDER BY series DESC, step DESC, generation DESC, name DESC");
    for (std::string& run : runs) {
      RunSummary& summary = out.emplace_back();
      summary.run = std::move(run);
      SQLite::Statement newest(
          database.sqlite(),
          fmt::format("SELECT step, name, created FROM checkpoints WHERE run=?1 AND state>={} {} LIMIT 1",
                      static_cast<int>(State::committed), newest_first(database, summary.run)));
      Binder(newest).add(summary.run);
      if (newest.executeStep()) {
        Columns row(newest);
        const std::uint64_t step = row.natural();
        summary.newest = {.name = row.text(), .step = step};
        summary.newest->created = row.time();
      }
      std::optional<std::uint64_t> last_step;
      select.reset();
      Binder(select).add(summary.run);
      while (select.executeStep()) {
        Columns row(select);
        const std::uint64_t step = row.natural();
        const State state = row.state();
        const std::uint64_t bytes = row.natural();
        summary.went_back = summary.went_back || row.natural() > 0;
        summary.bytes += std::min(bytes, UINT64_MAX - summary.bytes);
        ++summary.count;
        summary.damaged += state == State::corrupt || state == State::repairable ? 1 : 0;
        summary.unreadable += state == State::unreadable ? 1 : 0;
        summary.resaved = summary.resaved || last_step == step;
        last_step = step;
        if (state != State::verified) continue;
        if (summary.verified++ == 0) summary.verified_step = step;
      }
    }
    SQLite::Statement restored(database.sqlite(),
                               "SELECT run, step, max(at) FROM states JOIN checkpoints USING (checkpoint) "
                               "WHERE states.state='restored' GROUP BY run ORDER BY run");
    for (std::size_t at = 0; restored.executeStep();) {
      Columns row(restored);
      const std::string run = row.text();
      while (at < out.size() && out[at].run < run) ++at;
      if (at < out.size() && out[at].run == run) out[at].restored_step = row.natural();
    }
    SQLite::Statement pins(database.sqlite(),
                           "SELECT run, count(DISTINCT checkpoint) FROM pins JOIN checkpoints USING (checkpoint) "
                           "GROUP BY run ORDER BY run");
    std::size_t at = 0;
    while (pins.executeStep()) {
      Columns row(pins);
      const std::string run = row.text();
      while (at < out.size() && out[at].run < run) ++at;
      if (at < out.size() && out[at].run == run) out[at].pinned = row.natural();
    }
    // The words of the partial index that finds them (schemas/catalog/002).
    SQLite::Statement demoted(
        database.sqlite(),
        "SELECT run, step, name, id FROM checkpoints "
        "WHERE revision>0 AND optim_bytes=0 AND files>0 AND is_foreign=0 ORDER BY run, series, step, generation");
    at = 0;
    while (demoted.executeStep()) {
      Columns row(demoted);
      const std::string run = row.text();
      while (at < out.size() && out[at].run < run) ++at;
      if (at == out.size() || out[at].run != run) continue;
      ++out[at].demoted;
      const std::uint64_t step = row.natural();
      out[at].newest_demoted = {.name = row.text(), .id = row.text(), .step = step};
    }
    add_verifications(database, out);
    add_metrics(database, out);
    return out;
  });
}

Result<std::uint64_t> count_with_metric(Database& database, const std::string& run, const std::string& metric,
                                        double value) {
  return asked(database.file(), [&]() -> Result<std::uint64_t> {
    // CROSS: the checkpoints of the run first, not all marks of this name.
    SQLite::Statement& select = database.prepared(
        fmt::format("SELECT count(*) FROM checkpoints CROSS JOIN marks USING (checkpoint) WHERE run=?1 AND "
                    "marks.name=?2 AND kind IN ('metric', 'saved') AND value=?3 AND state>={}",
                    static_cast<int>(State::committed)));
    Binder(select).add(run).add(metric).add(value);
    const std::uint64_t count = select.executeStep() ? Columns(select).natural() : 0;
    select.reset();
    return count;
  });
}

}  // namespace ckpt::catalog
