#include "api/catalog/prune_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_names.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/index/names.hpp"
#include "catalog/index/rows.hpp"
#include "catalog/scan/links.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "format/text/glob.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

using catalog::Entry;
using catalog::TrashEntry;

bool wanted(const std::vector<std::string>& globs, const std::string& run) {
  return globs.empty() ||
         std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return matches_glob(run, glob); });
}

/// STORE/RUN/NAME, as a shell completes it, is RUN/NAME.
std::string without_store(const std::string& store, const std::string& name) {
  const std::string path = join_path(name, "");  // without a slash at its end
  const std::string above = store + "/";
  return path.starts_with(above) && catalog::find_separator(path) == std::string::npos ? path.substr(above.size())
                                                                                       : name;
}

}  // namespace

Result<ScannedStore> read_store(Io& io, const std::string& store, const PruneRequest& request) {
  const catalog::Trust trust = request.carries_out ? catalog::Trust::nothing_unseen : catalog::Trust::notes;
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, store, trust, request.now));
  ScannedStore out{.warnings = catalog.warnings(), .unread = catalog.refreshed().unread};
  catalog::Query query;
  const auto note_own = [&](const Entry& entry) {
    const catalog::Checkpoint& one = entry.checkpoint;
    if (!entry.foreign && !one.link)
      out.own.push_back({.run = one.run, .name = entry.name, .is_virtual = one.is_virtual});
  };
  if (!request.runs.empty()) {
    query.passes = [&](const Entry& entry) {
      note_own(entry);
      if (out.runs.empty() || out.runs.back() != entry.checkpoint.run) out.runs.push_back(entry.checkpoint.run);
      return wanted(request.runs, entry.checkpoint.run);
    };
  }
  for (const std::string& name : request.named) {
    CKPT_TRY(const Entry entry, find_in_catalog(io, catalog, without_store(store, name)));
    out.named.emplace(entry.checkpoint.run, entry.name);
  }
  CKPT_TRY(const auto known, catalog::select_runs(catalog.database()));
  for (const catalog::KnownRun& run : known) out.directories.push_back(run.run);
  CKPT_TRY(out.entries, catalog::select_entries(catalog.database(), query));
  if (request.runs.empty()) std::ranges::for_each(out.entries, note_own);
  CKPT_CHECK(check_seen(catalog.refreshed().unread, request.runs, out.runs));
  for (Entry& entry : out.entries) {
    for (const std::string& gone : catalog::drop_ownerless(io, store, entry)) {
      out.warnings.push_back(
          fmt::format("{}: no longer protected by {}, which no longer exists", entry.path(store), gone));
      out.ownerless.push_back({.checkpoint = entry.path(store), .owner = gone});
    }
  }
  catalog::note_links(store, catalog.refreshed().links, out.entries);
  return out;
}

Result<> check_runs(Io& io, const PruneRequest& request, const std::vector<TrashEntry>& trash, ScannedStore& scanned) {
  for (const std::string& glob : request.runs) {
    const auto matches = [&](const std::string& run) { return matches_glob(run, glob); };
    if (std::ranges::any_of(scanned.runs, matches)) continue;
    if (std::ranges::any_of(trash, matches, &TrashEntry::run)) continue;
    std::string text = fmt::format("{}: no run matches '{}'", request.store, glob);
    if (auto hint = hint_of_runs_below(io, request.store, glob, scanned.runs))
      return fail({.code = Errc::not_found,
                   .message = fmt::format("{}: '{}' is no run, but a directory of runs", request.store, glob),
                   .file = request.store,
                   .hint = *std::move(hint)});
    const bool is_empty = std::ranges::count(scanned.directories, glob) != 0;
    if (is_empty) text = fmt::format("{}: '{}' holds no checkpoint", request.store, glob);
    if (is_empty || glob.find_first_of("*?[") != std::string::npos) {
      scanned.warnings.push_back(std::move(text));
      continue;
    }
    const auto near = nearest(glob, scanned.runs);
    return fail({.code = Errc::not_found,
                 .message = std::move(text),
                 .file = request.store,
                 .hint = near ? fmt::format("did you mean '{}'?", *near)
                              : fmt::format("'ckpt list --store {}' shows the runs", request.store)});
  }
  return {};
}

std::vector<std::string> concerned_runs(const PruneRequest& request, const ScannedStore& scanned) {
  std::vector<std::string> out = request.runs;
  for (const auto& [run, name] : scanned.named) out.push_back(run);
  return out;
}

void note_undeleted(const std::vector<TrashEntry>& trash, catalog::Time now, std::vector<Entry>& entries) {
  std::map<std::pair<std::string_view, std::string_view>, catalog::Time> until;
  for (const TrashEntry& entry : trash) {
    if (!entry.recorded || entry.record.state != catalog::TrashRecord::State::restored) continue;
    const catalog::Time end = catalog::undeleted_until(entry.record);
    if (now < end) until[{entry.run, entry.name}] = end;
  }
  if (until.empty()) return;
  for (Entry& entry : entries) {
    const auto found = until.find({entry.checkpoint.run, entry.name});
    if (found != until.end()) entry.checkpoint.undeleted_until = found->second;
  }
}

}  // namespace ckpt
