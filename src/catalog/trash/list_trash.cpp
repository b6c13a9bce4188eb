// The contents of the trash, from its directories and records alone.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

#include "catalog/scan/scan.hpp"
#include "catalog/trash/place.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/real_path.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/locks/claims.hpp"
#include "engine/store/run_directory.hpp"

namespace ckpt::catalog {
namespace {

using RecordState = TrashRecord::State;

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
  // A file of another program in its place holds nothing of ours.
  const bool is_none = !entries && (entries.error().code == Errc::not_found || entries.error().system_code == ENOTDIR);
  if (is_none) return std::vector<DirEntry>();
  return entries;
}

/// All of a trash, directory by directory.
class Listing {
 public:
  Listing(Io& io, const std::string& store, TrashScope scope, TrashFaults* faults)
      : io_(io), store_(store), scope_(scope), faults_(faults) {}

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

 private:
  Result<> list_run(const std::string& run, std::vector<std::string>& pending) {
    auto folder = list_trash_folder(io_, store_, run);
    if (!folder) {
      if (faults_ == nullptr) return fail(std::move(folder).error());
      faults_->unread.push_back({.run = run, .error = std::move(folder).error()});
      return {};
    }
    for (const TrashFolder::Item& item : folder->items) {
      if (!item.present && scope_ == TrashScope::present) continue;
      if (auto entry = read_trash_entry(io_, store_, run, item)) entries.push_back(*std::move(entry));
    }
    std::ranges::move(folder->below, std::back_inserter(pending));
    if (faults_ != nullptr) std::ranges::move(folder->unfinished, std::back_inserter(faults_->unfinished));
    return {};
  }

  Io& io_;
  const std::string& store_;
  TrashScope scope_;
  TrashFaults* faults_;
};

}  // namespace

SeriesBirth birth_of(const TrashEntry& entry) {
  const TrashRecord& record = entry.record;
  return {.run = entry.run,
          .series = record.series,
          .from = record.series_from,
          .after = record.series_after,
          .began = std::max(record.created, record.committed.value_or(record.created))};
}

std::vector<SeriesBirth> births_of(const std::vector<TrashEntry>& entries) {
  std::vector<SeriesBirth> out;
  for (const TrashEntry& entry : entries)
    if (entry.recorded && entry.record.series_from) out.push_back(birth_of(entry));
  return out;
}

Result<std::vector<SeriesBirth>> births_in_trash(Io& io, const std::string& store, const std::string& run) {
  constexpr std::size_t kMostRead = 1000;
  const auto generation_of = [](const TrashFolder::Item& item) {
    const auto name = CheckpointName::parse(item.kept_as);
    return name ? name->generation : 0;
  };
  std::vector<SeriesBirth> out;
  const auto info = io.stat(trash_of_run(store, run));
  // If a foreign file has its name there is none.
  if (info ? info->kind != FileInfo::Kind::directory : info.error().code == Errc::not_found) return out;
  CKPT_TRY(TrashFolder folder, list_trash_folder(io, store, run));
  std::erase_if(folder.items, [](const TrashFolder::Item& item) { return !item.has_record; });
  std::ranges::stable_sort(folder.items, std::ranges::greater(), generation_of);
  for (const TrashFolder::Item& item : folder.items) {
    if (out.size() == kMostRead) break;
    const auto entry = read_trash_entry(io, store, run, item);
    if (entry && entry->recorded) out.push_back(birth_of(*entry));
  }
  return out;
}

Result<std::vector<SeriesBirth>> births_above(Io& io, const std::string& run_directory, const std::string& known) {
  const std::string run = real_path(run_directory).value_or(run_directory);
  const std::string without = known.empty() ? known : real_path(known).value_or(known);
  std::vector<SeriesBirth> out;
  for (const std::string& store : stores_above(io, join_path(run, "."))) {  // it may be one itself
    if (store == without) continue;
    std::string_view below(run);
    if (store != ".") below.remove_prefix(std::min(below.size(), store.size()));
    while (below.starts_with('/')) below.remove_prefix(1);
    CKPT_TRY(auto births, births_in_trash(io, store, std::string(below.empty() ? kStoreItself : below)));
    for (SeriesBirth& birth : births) {
      birth.run.clear();
      out.push_back(std::move(birth));
    }
  }
  return out;
}

Result<std::vector<SeriesBirth>> births_of_runs(Io& io, const std::string& store, const std::vector<TrashEntry>& trash,
                                                const std::set<std::string>& runs) {
  std::vector<SeriesBirth> out = births_of(trash);
  for (const std::string& run : runs) {
    CKPT_TRY(auto others, births_above(io, run_path(store, run), store));
    for (SeriesBirth& birth : others) {
      birth.run = run;
      out.push_back(std::move(birth));
    }
  }
  return out;
}

std::string trash_path(const std::string& store) {
  return join_path(join_path(store, ".ckpt"), "trash");
}

std::string trash_of_run(const std::string& store, const std::string& run) {
  const std::string trash = trash_path(store);
  return run == kStoreItself ? trash : join_path(trash, run);
}

std::string record_path(const std::string& store, const std::string& run, const std::string& kept_as) {
  return join_path(trash_of_run(store, run), kept_as + std::string(kRecordSuffix));
}

Result<TrashFolder> list_trash_folder(Io& io, const std::string& store, const std::string& run) {
  const std::string directory = trash_of_run(store, run);
  CKPT_TRY(const auto listed, list_if_there(io, directory));
  TrashFolder out;
  std::map<std::string, TrashFolder::Item> found;
  for (const DirEntry& entry : listed) {
    if (entry.kind != FileInfo::Kind::file || entry.is_link) continue;
    if (entry.name.ends_with(std::string(kRecordSuffix) + std::string(kTemporarySuffix)))
      out.unfinished.push_back(join_path(directory, entry.name));
    if (!entry.name.ends_with(kRecordSuffix)) continue;
    const std::string kept_as = entry.name.substr(0, entry.name.size() - kRecordSuffix.size());
    found.emplace(kept_as, TrashFolder::Item{.kept_as = kept_as, .has_record = true});
  }
  for (const DirEntry& entry : listed) {
    const bool is_directory = entry.kind == FileInfo::Kind::directory && !entry.is_link;
    const auto recorded = found.find(entry.name);
    if (recorded != found.end()) {
      recorded->second.present = true;
      // Its target was never moved here: nothing is unlinked through it.
      recorded->second.is_link = entry.is_link;
    } else if (is_directory && CheckpointName::parse(entry.name)) {
      found.emplace(entry.name, TrashFolder::Item{.kept_as = entry.name, .present = true});
    } else if (is_directory && run_depth(run) < kDeepestRun) {
      out.below.push_back(run_below(run, entry.name));
    }
  }
  for (auto& [name, item] : found) out.items.push_back(std::move(item));
  return out;
}

std::optional<TrashEntry> read_trash_entry(Io& io, const std::string& store, const std::string& run,
                                           const TrashFolder::Item& item) {
  TrashEntry out{.run = run, .name = name_in_run(item.kept_as), .kept_as = item.kept_as, .present = item.present};
  if (const auto name = CheckpointName::parse(out.name)) out.record.step = name->step;  // also without a record
  if (!item.has_record) return out;
  auto text = read_small_file(io, record_path(store, run, item.kept_as), kMostRecordBytes);
  if (!text && text.error().code == Errc::not_found) {
    // If the record is gone again, the entry is treated as one without a record.
    return item.present && CheckpointName::parse(item.kept_as) ? std::optional(out) : std::nullopt;
  }
  auto record = text ? parse_record(*text) : Result<TrashRecord>(fail(text.error()));
  out.recorded = record.has_value() && !item.is_link;
  if (record) out.record = *std::move(record);
  if (!out.record.dropped.empty() && out.name.ends_with(kOptimizerSuffix))
    out.name.resize(out.name.size() - kOptimizerSuffix.size());
  return out;
}

Result<std::vector<TrashEntry>> list_trash(Io& io, const std::string& store, TrashScope scope, TrashFaults* faults) {
  Listing listing(io, store, scope, faults);
  CKPT_CHECK(listing.list_all());
  return std::move(listing.entries);
}

void InTrash::add(const Waiting& one, Time now) {
  ++(one.is_optimizer ? optimizers : checkpoints);
  bytes += std::min(one.bytes, UINT64_MAX - bytes);
  if (one.purge_at <= now || one.purging) ++over;
  first_over = std::min(first_over.value_or(one.purge_at), one.purge_at);
  last_over = std::max(last_over.value_or(one.purge_at), one.purge_at);
}

Waiting waiting_of(const TrashRecord& record) {
  return {.is_optimizer = !record.dropped.empty(),
          .bytes = record.bytes,
          .purge_at = record.purge_at,
          .purging = record.state == RecordState::purging};
}

Result<InTrash> measure_trash(Io& io, const std::string& store, const std::string& run, Time now) {
  CKPT_TRY(const auto entries, list_trash(io, store, TrashScope::present));
  InTrash out;
  for (const TrashEntry& entry : entries) {
    if (!entry.present || (!run.empty() && entry.run != run)) continue;
    if (entry.recorded) {
      out.add(waiting_of(entry.record), now);
    } else {
      ++out.unrecorded;
    }
  }
  return out;
}

std::optional<TrashEntry> find_demotion(Io& io, const std::string& store, const std::string& run,
                                        const std::string& name) {
  const std::string kept_as = name + std::string(kOptimizerSuffix);
  auto out = read_trash_entry(io, store, run, {.kept_as = kept_as, .has_record = true});
  if (!out || !out->recorded || out->record.dropped.empty()) return std::nullopt;
  const auto there = io.stat(join_path(trash_of_run(store, run), kept_as));
  out->present = there || there.error().code != Errc::not_found;  // to bring it back then gives the reason
  return out;
}

}  // namespace ckpt::catalog
