// What stands in the trash, from its directories and records alone.
#include <algorithm>
#include <map>
#include <utility>

#include "catalog/trash/place.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/replace_file.hpp"
#include "engine/run_directory.hpp"

namespace ckpt::catalog {
namespace {

using State = TrashRecord::State;

/// "NAME.~2" -> "NAME".
std::string name_in_run(const std::string& kept_as) {
  const std::size_t mark = kept_as.rfind(kSecondMark);
  if (mark == std::string::npos || mark == 0) return kept_as;
  const std::string_view digits = std::string_view(kept_as).substr(mark + kSecondMark.size());
  const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  return number ? kept_as.substr(0, mark) : kept_as;
}

Result<std::vector<DirEntry>> list_if_there(Io& io, const std::string& path) {
  auto entries = io.list(path);
  if (!entries && entries.error().code == Errc::not_found) return std::vector<DirEntry>();
  return entries;
}

/// Nothing where there is no record of that name.
std::optional<TrashEntry> read_entry(Io& io, const std::string& directory, const std::string& run,
                                     const std::string& kept_as) {
  TrashEntry out{.run = run, .name = name_in_run(kept_as), .kept_as = kept_as};
  auto text = read_small_file(io, join_path(directory, kept_as + std::string(kRecordSuffix)), kMostRecordBytes);
  if (!text && text.error().code == Errc::not_found) return std::nullopt;
  auto record = text ? parse_record(*text) : Result<TrashRecord>(fail(text.error()));
  out.recorded = record.has_value();
  if (record) out.record = *std::move(record);
  if (!out.record.dropped.empty() && out.name.ends_with(kOptimizerSuffix))
    out.name.resize(out.name.size() - kOptimizerSuffix.size());
  return out;
}

/// All of a trash, directory by directory.
class Listing {
 public:
  Listing(Io& io, const std::string& store, TrashScope scope) : io_(io), store_(store), scope_(scope) {}

  Result<> list_all() {
    std::vector<std::string> pending{std::string(kStoreItself)};
    while (!pending.empty()) {
      const std::string run = std::move(pending.back());
      pending.pop_back();
      CKPT_CHECK(list_run(run, pending));
    }
    std::sort(entries.begin(), entries.end(), [](const TrashEntry& a, const TrashEntry& b) {
      return std::pair(a.run, a.kept_as) < std::pair(b.run, b.kept_as);
    });
    return {};
  }

  std::vector<TrashEntry> entries{};
  std::vector<std::string> unfinished{};

 private:
  /// What is in the directory of one run; what lies below and belongs to others is `pending`.
  Result<> list_run(const std::string& run, std::vector<std::string>& pending) {
    const std::string directory = trash_of_run(store_, run);
    CKPT_TRY(const auto listed, list_if_there(io_, directory));
    std::map<std::string, TrashEntry> found;
    std::set<std::string_view> there;
    for (const DirEntry& entry : listed) there.insert(entry.name);
    for (const DirEntry& entry : listed) {
      if (entry.kind != FileInfo::Kind::file || entry.is_link) continue;
      if (entry.name.ends_with(kTemporarySuffix)) unfinished.push_back(join_path(directory, entry.name));
      if (!entry.name.ends_with(kRecordSuffix)) continue;
      const std::string kept_as = entry.name.substr(0, entry.name.size() - kRecordSuffix.size());
      if (scope_ == TrashScope::present && !there.contains(kept_as)) continue;
      if (auto one = read_entry(io_, directory, run, kept_as)) found.emplace(kept_as, *std::move(one));
    }
    for (const DirEntry& entry : listed) {
      const bool is_directory = entry.kind == FileInfo::Kind::directory && !entry.is_link;
      const auto recorded = found.find(entry.name);
      if (recorded != found.end()) {
        recorded->second.present = true;
        // What it leads to was never put here: nothing is unlinked through it.
        if (entry.is_link) recorded->second.recorded = false;
      } else if (is_directory && CheckpointName::parse(entry.name)) {
        found.emplace(entry.name, TrashEntry{.run = run, .name = entry.name, .kept_as = entry.name, .present = true});
      } else if (is_directory) {
        pending.push_back(run == kStoreItself ? entry.name : join_path(run, entry.name));
      }
    }
    for (auto& [name, entry] : found) entries.push_back(std::move(entry));
    return {};
  }

  Io& io_;
  const std::string& store_;
  TrashScope scope_;
};

}  // namespace

std::string trash_path(const std::string& store) {
  return join_path(join_path(store, ".ckpt"), "trash");
}

std::string trash_of_run(const std::string& store, const std::string& run) {
  const std::string trash = trash_path(store);
  return run == kStoreItself ? trash : join_path(trash, run);
}

Result<std::vector<TrashEntry>> list_trash(Io& io, const std::string& store, TrashScope scope,
                                           std::vector<std::string>* unfinished) {
  Listing listing(io, store, scope);
  CKPT_CHECK(listing.list_all());
  if (unfinished != nullptr) *unfinished = std::move(listing.unfinished);
  return std::move(listing.entries);
}

Result<InTrash> measure_trash(Io& io, const std::string& store, const std::string& run, Time now) {
  CKPT_TRY(const auto entries, list_trash(io, store, TrashScope::present));
  InTrash out;
  for (const TrashEntry& entry : entries) {
    if (!entry.present || (!run.empty() && entry.run != run)) continue;
    if (!entry.recorded) {
      ++out.unrecorded;
      continue;
    }
    const TrashRecord& record = entry.record;
    ++(record.dropped.empty() ? out.checkpoints : out.optimizers);
    out.bytes += std::min(record.bytes, UINT64_MAX - out.bytes);
    if (record.purge_at <= now || record.state == State::purging) ++out.over;
    out.first_over = std::min(out.first_over.value_or(record.purge_at), record.purge_at);
    out.last_over = std::max(out.last_over.value_or(record.purge_at), record.purge_at);
  }
  return out;
}

std::optional<TrashEntry> find_demotion(Io& io, const std::string& store, const std::string& run,
                                        const std::string& name) {
  const std::string directory = trash_of_run(store, run);
  const std::string kept_as = name + std::string(kOptimizerSuffix);
  auto out = read_entry(io, directory, run, kept_as);
  if (!out || !out->recorded || out->record.dropped.empty()) return std::nullopt;
  out->present = io.stat(join_path(directory, kept_as)).has_value();
  return out;
}

}  // namespace ckpt::catalog
