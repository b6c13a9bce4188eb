#include "catalog/index/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "catalog/index/rows.hpp"
#include "catalog/index/run_lineage.hpp"
#include "catalog/index/sqlite.hpp"
#include "catalog/metric_order.hpp"
#include "format/text/name_list.hpp"
#include "format/text/nearest.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::size_t kLeastDigits = 6;
constexpr std::size_t kIdDigits = 32;
constexpr std::size_t kCandidatesShown = 10;
constexpr std::string_view kLatest = "latest";
constexpr std::string_view kBest = "best";

tl::unexpected<Error> unknown(const std::string& name, const std::string& reason, std::string hint = {}) {
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: {}", name, reason),
               .hint = hint.empty() ? "'ckpt list' shows the checkpoints" : std::move(hint)});
}

tl::unexpected<Error> several(Database& database, const std::string& name, const std::vector<Entry>& entries) {
  const auto all = select_entries(database, {});
  const ShortNames names(all ? *all : entries);
  NameList list(kCandidatesShown);
  for (const Entry& entry : entries) list.add(names.of(entry));
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: ambiguous, {} checkpoints match: {}", name, entries.size(), list.text()),
               .hint = "give the full name of one"});
}

Result<std::string> run_of(Database& database, const std::string& name, const std::string& run) {
  CKPT_TRY(const auto runs, runs_with_entries(database));
  if (run.empty()) {
    if (runs.size() == 1) return runs.front();
    return fail({.code = runs.empty() ? Errc::not_found : Errc::usage,
                 .message = fmt::format("{}: the store has {} runs with checkpoints", name, runs.size()),
                 .hint = runs.empty() ? "give the store with --store DIR" : "write " + runs.front() + name});
  }
  if (std::binary_search(runs.begin(), runs.end(), run)) return run;
  const auto near = nearest(run, runs);
  return unknown(name, fmt::format("no run '{}'", run), near ? fmt::format("did you mean '{}'?", *near) : "");
}

/// It, or its marks, say which is meant, and cannot be read.
Error unread_entry(const std::string& name, const Entry& entry) {
  const std::string_view what = entry.checkpoint.state == State::unreadable ? "" : "the marks of ";
  return {.code = Errc::io,
          .message = fmt::format("{}: {}{} cannot be read: {}", name, what,
                                 short_name(entry.checkpoint.run, entry.checkpoint.step), entry.reason),
          .hint = "name a checkpoint by its step"};
}
bool is_unread(const Entry& entry) {
  return entry.checkpoint.state == State::unreadable || entry.checkpoint.marks_unreadable;
}

/// With the series of what was deleted.
Result<Lineage> lineage_of_run(Database& database, const std::string& run, const Naming& naming) {
  std::vector<SeriesBirth> births;
  if (naming.births) {
    CKPT_TRY(births, naming.births(run));
  }
  return lineage_of_run(database, run, births);
}

Result<std::string> newest_name(Database& database, const std::string& name, const std::string& run,
                                std::uint64_t before, const Naming& naming) {
  CKPT_TRY(const Lineage lineage, lineage_of_run(database, run, naming));
  return asked(database.file(), [&]() -> Result<std::string> {
    SQLite::Statement select(database.sqlite(), "SELECT name, series, step, state FROM checkpoints WHERE run=?1 " +
                                                    newest_first(database, run));
    Binder(select).add(run);
    std::uint64_t left = before;
    std::string superseded;  // the newest that would be usable
    std::string unread;      // the newest that might be
    while (select.executeStep()) {
      Columns row(select);
      std::string found = row.text();
      const std::uint64_t series = row.natural();
      const std::uint64_t step = row.natural();
      const std::uint64_t state = row.natural();
      if (state == static_cast<std::uint64_t>(State::unreadable) && unread.empty() && !lineage.supersedes(series, step))
        unread = found;
      if (state < static_cast<std::uint64_t>(State::committed)) continue;
      if (lineage.supersedes(series, step)) {
        if (superseded.empty()) superseded = fmt::format("{}/{}", run, found);
        continue;
      }
      if (left-- == 0) return found;
    }
    if (!unread.empty()) {
      CKPT_TRY(const auto entries, select_entries(database, {.run = run, .name = unread}));
      if (!entries.empty()) return fail(unread_entry(name, entries.front()));
    }
    return unknown(name,
                   before == 0 ? fmt::format("run '{}' has no usable checkpoint", run)
                               : fmt::format("run '{}' has only {} usable", run, before - left),
                   superseded.empty() ? "" : fmt::format("to use a superseded checkpoint, name it: {}", superseded));
  });
}

Result<Entry> by_directory(Database& database, const std::string& name, const std::string& run,
                           const std::string& directory) {
  CKPT_TRY(const auto entries, select_entries(database, {.run = run, .name = directory}));
  if (entries.empty()) return unknown(name, "vanished meanwhile");
  return entries.front();
}

Result<Entry> by_step(Database& database, const std::string& name, const std::string& run, std::uint64_t step) {
  CKPT_TRY(auto entries, select_entries(database, {.run = run, .step = step}));
  if (!entries.empty()) {
    return *std::max_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return committed_before(a.checkpoint, b.checkpoint);
    });
  }
  return asked(database.file(), [&]() -> Result<Entry> {
    std::string near;
    for (const char* words : {"SELECT max(step) FROM checkpoints WHERE run=?1 AND step<?2",
                              "SELECT min(step) FROM checkpoints WHERE run=?1 AND step>?2"}) {
      SQLite::Statement select(database.sqlite(), words);
      Binder(select).add(run).add(step);
      if (!select.executeStep() || select.getColumn(0).isNull()) continue;
      near += fmt::format("{}{}", near.empty() ? "" : " and ", select.getColumn(0).getInt64());
    }
    return unknown(name, fmt::format("run '{}' has no step {}", run, step), "nearest: " + near);
  });
}

Result<Entry> by_metric(Database& database, const std::string& name, const std::string& run, std::string metric,
                        std::optional<bool> is_higher, const Naming& naming) {
  CKPT_TRY(const Lineage lineage, lineage_of_run(database, run, naming));
  std::optional<Error> unread;
  const auto may_be_best = [&](const Entry& entry) {
    const Checkpoint& one = entry.checkpoint;
    if (lineage.supersedes(one.series, one.step)) return false;
    if (is_unread(entry) && !unread) unread = unread_entry(name, entry);
    return !one.metrics.empty() && one.state >= State::committed;
  };
  CKPT_TRY(auto entries, select_entries(database, {.run = run, .passes = may_be_best}));
  if (unread) return fail(*std::move(unread));
  std::set<std::string> metrics;
  for (const Entry& entry : entries)
    for (const auto& [key, value] : entry.checkpoint.metrics) metrics.insert(key);
  if (metrics.empty()) return unknown(name, fmt::format("no checkpoint of run '{}' has a metric", run));
  if (metric.empty()) {
    if (metrics.size() > 1) {
      std::string list;
      for (const std::string& one : metrics) list += (list.empty() ? "" : ", ") + one;
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: run '{}' has several metrics: {}", name, run, list),
                   .hint = fmt::format("write {}@best:{}", run, *metrics.begin())});
    }
    metric = *metrics.begin();
  }
  const bool higher = is_higher.value_or(is_higher_better(metric));
  const Entry* best = nullptr;
  double best_value = 0;
  for (const Entry& entry : entries) {  // newest first: of equal ones the newest
    const double* value = find_metric(entry.checkpoint, metric);
    if (value == nullptr || std::isnan(*value)) continue;
    if (best != nullptr && !(higher ? *value > best_value : *value < best_value)) continue;
    best = &entry;
    best_value = *value;
  }
  if (best != nullptr) return *best;
  const std::vector<std::string> known(metrics.begin(), metrics.end());
  const auto near = nearest(metric, known);
  return unknown(name, fmt::format("no checkpoint of run '{}' has the metric '{}' as a number", run, metric),
                 near ? fmt::format("did you mean '{}'?", *near) : "");
}

Result<Entry> by_tag(Database& database, const std::string& name, const std::string& run, const std::string& tag) {
  CKPT_TRY(auto entries, select_entries(database, {.run = run, .tag = tag}));
  if (entries.size() == 1) return std::move(entries.front());
  if (entries.size() > 1) return several(database, name, entries);
  CKPT_TRY(entries, select_entries(database, {.run = run, .name = tag}));
  if (!entries.empty()) return std::move(entries.front());
  CKPT_TRY(entries, select_entries(database, {.run = run, .passes = is_unread}));
  if (!entries.empty()) return fail(unread_entry(name, entries.front()));
  return asked(database.file(), [&]() -> Result<Entry> {
    std::vector<std::string> known{std::string(kLatest), std::string(kBest)};
    SQLite::Statement select(database.sqlite(),
                             "SELECT DISTINCT marks.name FROM marks JOIN checkpoints USING (checkpoint) "
                             "WHERE marks.kind='tag' AND run=?1 ORDER BY marks.name");
    Binder(select).add(run);
    while (select.executeStep()) known.push_back(Columns(select).text());
    const bool means_latest = tag == "last" || tag == "newest";
    const auto near = means_latest ? std::optional(std::string(kLatest)) : nearest(tag, known);
    return unknown(name, fmt::format("run '{}' has no tag '{}'", run, tag),
                   near ? fmt::format("did you mean '{}@{}'?", run, *near) : "");
  });
}

Result<Entry> by_id(Database& database, const std::string& name) {
  CKPT_TRY(auto entries, select_entries(database, {.id_prefix = name}));
  if (entries.size() == 1) return std::move(entries.front());
  if (entries.size() > 1) return several(database, name, entries);
  return unknown(name, "no id has this prefix");
}

/// "1000.g7".
std::optional<CheckpointName> step_and_generation(std::string_view word) {
  const std::size_t mark = word.find(".g");
  if (mark == std::string_view::npos) return std::nullopt;
  const auto step = parse_number<std::uint64_t>(word.substr(0, mark));
  const auto generation = parse_number<std::uint64_t>(word.substr(mark + 2));
  if (!step || !generation) return std::nullopt;
  return CheckpointName{.step = *step, .generation = *generation};
}

bool looks_like_id(std::string_view text) {
  return text.size() >= kLeastDigits && text.size() <= kIdDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

bool looks_like_name(std::string_view text) {
  return text.find('@') != std::string_view::npos || looks_like_id(text);
}

std::size_t find_separator(std::string_view name) {
  const std::size_t metric = name.rfind(fmt::format("@{}:", kBest));  // whose name may hold a '/'
  if (metric != std::string_view::npos) return metric;
  const std::size_t at = name.rfind('@');
  return at == std::string_view::npos || name.find('/', at) == std::string_view::npos ? at : std::string_view::npos;
}

bool is_tag(std::string_view text) {
  const auto is_plain = [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '@' && c != '/'; };
  if (text.empty() || !std::ranges::all_of(text, is_plain)) return false;
  if (parse_number<std::uint64_t>(text) || step_and_generation(text) || CheckpointName::parse(text)) return false;
  for (const std::string_view word : {kLatest, kBest}) {
    const std::string_view rest = text.starts_with(word) ? text.substr(word.size()) : "-";
    if (rest.empty() || rest.front() == '~' || rest.front() == ':') return false;
  }
  return true;
}

std::string directory_name(std::string_view run, std::string_view directory) {
  return is_tag(directory) ? fmt::format("{}@{}", run, directory) : join_path(run, directory);
}

std::string short_name(std::string_view run, std::uint64_t step) {
  return fmt::format("{}@{}", run, step);
}

ShortNames::ShortNames(std::span<const Entry> entries) {
  for (const Entry& entry : entries) add(entry);
}

void ShortNames::add(const Entry& entry) {
  decltype(Save::order) order(commit_order(entry.checkpoint));
  Save& newest = newest_[{entry.checkpoint.run, entry.checkpoint.step}];
  if (newest.directory.empty() || newest.order < order) newest = {.order = std::move(order), .directory = entry.name};
}

std::string ShortNames::of(const Entry& entry) const {
  const Checkpoint& checkpoint = entry.checkpoint;
  const auto newest = newest_.find({checkpoint.run, checkpoint.step});
  if (newest != newest_.end() && newest->second.directory == entry.name)
    return short_name(checkpoint.run, checkpoint.step);
  return full(entry);
}

std::string ShortNames::full(const Entry& entry) const {
  const Checkpoint& checkpoint = entry.checkpoint;
  if (entry.foreign) return directory_name(checkpoint.run, entry.name);
  return fmt::format("{}.g{}", short_name(checkpoint.run, checkpoint.step), checkpoint.generation);
}

Result<Entry> find_checkpoint(Database& database, const std::string& name) {
  return find_checkpoint(database, name, Naming{});
}

Result<Entry> find_checkpoint(Database& database, const std::string& name, const Naming& naming) {
  const std::size_t at = find_separator(name);
  if (at == std::string::npos) {
    if (looks_like_id(name)) return by_id(database, name);
    if (const std::size_t slash = name.rfind('/'); slash != std::string::npos && slash + 1 < name.size()) {
      CKPT_TRY(const auto found,
               select_entries(database, {.run = name.substr(0, slash), .name = name.substr(slash + 1)}));
      if (!found.empty()) return found.front();
      return unknown(name, "no such directory in the run");
    }
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: not a checkpoint name", name),
                 .hint = "use RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@TAG, RUN/DIRECTORY or an id prefix"});
  }
  CKPT_TRY(const std::string run, run_of(database, name, name.substr(0, at)));
  const std::string word = name.substr(at + 1);
  if (word.empty())
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: nothing after the '@'", name),
                 .hint = fmt::format("write {0}@STEP, {0}@latest, {0}@best or {0}@TAG", run)});
  if (const auto step = parse_number<std::uint64_t>(word)) return by_step(database, name, run, *step);
  if (const auto save = step_and_generation(word)) {
    CKPT_TRY(const auto found, select_entries(database, {.run = run, .name = save->text()}));
    if (!found.empty()) return found.front();
    return unknown(name, fmt::format("run '{}' has no generation {} of step {}", run, save->generation, save->step));
  }
  if (word == kLatest || word.starts_with(std::string(kLatest) + "~")) {
    const auto before =
        word == kLatest ? 0 : parse_number<std::uint64_t>(std::string_view(word).substr(kLatest.size() + 1));
    if (!before) return fail(Errc::usage, fmt::format("{}: expected a number after '~'", name));
    CKPT_TRY(const std::string directory, newest_name(database, name, run, *before, naming));
    return by_directory(database, name, run, directory);
  }
  const bool is_best = word == kBest || word.starts_with(std::string(kBest) + ":");
  const auto best = is_best && naming.best ? naming.best(run) : std::nullopt;
  if (word == kBest) {
    return best ? by_metric(database, name, run, best->metric, best->higher, naming)
                : by_metric(database, name, run, "", std::nullopt, naming);
  }
  if (is_best) {
    std::string metric = word.substr(kBest.size() + 1);
    std::optional<bool> is_higher;
    if (metric.ends_with(":max") || metric.ends_with(":min")) {
      is_higher = metric.ends_with(":max");
      metric.resize(metric.size() - 4);
    } else if (best && best->metric == metric) {
      is_higher = best->higher;
    }
    return by_metric(database, name, run, std::move(metric), is_higher, naming);
  }
  CKPT_TRY(auto directory, select_entries(database, {.run = run, .name = word}));
  if (!directory.empty()) return std::move(directory.front());
  return by_tag(database, name, run, word);
}

}  // namespace ckpt::catalog
