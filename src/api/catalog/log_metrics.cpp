#include "api/catalog/log_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "api/catalog/named_checkpoint.hpp"
#include "catalog/index/names.hpp"
#include "catalog/index/rows.hpp"
#include "convert/training_log.hpp"
#include "format/text/glob.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

using catalog::Entry;

struct ChosenRun {
  std::vector<Entry> entries{};  ///< of the run, oldest first
  std::vector<std::string> labels{};
  std::optional<std::string> one{};  ///< the path of the only one that was named
};

Result<ChosenRun> choose_run(Io& io, const LogMetricsRequest& request, std::vector<std::string>& warnings) {
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, request.store, catalog::Trust::notes, request.now));
  warnings = catalog.warnings();
  ChosenRun out;
  CKPT_TRY(out.entries, select_entries(catalog.database(), {.run = request.name}));
  if (out.entries.empty()) {
    CKPT_TRY(const Entry named, find_in_catalog(io, catalog, request.name));
    out.one = named.path(request.store);
    CKPT_TRY(out.entries, select_entries(catalog.database(), {.run = named.checkpoint.run}));
  }
  const catalog::ShortNames names(out.entries);
  std::ranges::stable_sort(out.entries, {}, [](const Entry& entry) { return entry.checkpoint.step; });
  for (const Entry& entry : out.entries) out.labels.push_back(names.of(entry));
  return out;
}

/// The values of a log by metric and step; of several at one step the last counts.
using Logged = std::map<std::string, std::map<std::uint64_t, double>>;

Result<Logged> read_log(Io& io, const LogMetricsRequest& request) {
  CKPT_TRY(const std::vector<LoggedValue> values, read_training_log(io, request.log));
  Logged out;
  std::set<std::string> others;
  for (const LoggedValue& one : values) {
    const bool wanted = request.only.empty() || std::ranges::any_of(request.only, [&](const std::string& glob) {
                          return matches_glob(one.name, glob);
                        });
    if (wanted)
      out[one.name][one.step] = one.value;
    else
      others.insert(one.name);
  }
  if (!out.empty()) return out;
  return fail({.code = Errc::not_found,
               .message = request.log + (others.empty() ? ": no metrics in this log" : ": no metric matches"),
               .file = request.log,
               .hint = others.empty() ? "" : "the log has " + name_list(others)});
}

/// The values up to a step, and after the step before.
std::vector<MarkChange> changes_at(const Logged& logged, std::uint64_t step, std::optional<std::uint64_t> before,
                                   const LogMetricsRequest& request) {
  std::vector<MarkChange> out;
  for (const auto& [name, values] : logged) {
    auto at = values.upper_bound(step);
    if (at == values.begin()) continue;
    --at;
    if (before && at->first <= *before) continue;
    out.push_back({.mark = {.kind = catalog::Mark::Kind::metric,
                            .name = name,
                            .owner = request.owner,
                            .at = request.now,
                            .value = at->second}});
  }
  return out;
}

std::string steps_text(const Logged& logged) {
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  for (const auto& [name, values] : logged) {
    first = std::min(first, values.begin()->first);
    last = std::max(last, values.rbegin()->first);
  }
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

}  // namespace

Result<LogMetricsReport> record_log_metrics(Io& io, const LogMetricsRequest& request) {
  CKPT_TRY(const Logged logged, read_log(io, request));
  LogMetricsReport out;
  CKPT_TRY(const ChosenRun found, choose_run(io, request, out.warnings));
  std::optional<std::uint64_t> before;
  for (std::size_t i = 0; i < found.entries.size(); ++i) {
    const Entry& entry = found.entries[i];
    const std::uint64_t step = entry.checkpoint.step;
    const bool repeats = i + 1 < found.entries.size() && found.entries[i + 1].checkpoint.step == step;
    const auto since = before;
    if (!repeats) before = step;
    if (found.one && entry.path(request.store) != *found.one) continue;
    auto changes = changes_at(logged, step, since, request);
    if (changes.empty() || entry.checkpoint.single_file) {
      if (!changes.empty()) out.warnings.push_back(found.labels[i] + ": a single-file checkpoint cannot have marks");
      out.without.push_back(found.labels[i]);
      continue;
    }
    CKPT_TRY(
        MarkReport report,
        change_marks_of(
            io,
            {.store = request.store, .checkpoint = found.labels[i], .changes = std::move(changes), .now = request.now},
            entry));
    out.marked.push_back(std::move(report));
  }
  if (!out.marked.empty()) return out;
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: no values for {}; the log covers {}", request.log, name_list(out.without),
                                      steps_text(logged)),
               .file = request.log});
}

}  // namespace ckpt
