#include "api/store_oracle.hpp"

#include <algorithm>
#include <map>

#include "catalog/trash/record.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::test {
namespace {

using catalog::Duration;
using catalog::Time;
using catalog::TrashRecord;
using universal::FileClass;
using Where = Known::Where;

const std::string kManifest(universal::kManifestPath);
const std::string kCopy(universal::kManifestCopyPath);
const std::string kAside = "aside";  // where the manifest of an unreadable one waits
const std::string kOptimFolder = "shards/optim/";

/// Every file of a disk, read once.
using Snapshot = std::map<std::string, std::string>;

Snapshot snapshot(const MemoryDisk& disk) {
  Snapshot out;
  for (const std::string& path : disk.tree())
    if (path.back() != '/') out.emplace(path, disk.text(path));
  return out;
}

Tree below(const Snapshot& all, const std::string& directory) {
  Tree out;
  const std::string prefix = directory + "/";
  for (auto at = all.lower_bound(prefix); at != all.end() && at->first.starts_with(prefix); ++at) {
    const std::string name = at->first.substr(prefix.size());
    if (!name.starts_with("marks/") && !name.ends_with(".tmp")) out.emplace(name, at->second);
  }
  return out;
}

/// The optimizer's files of a checkpoint, by their names in its folder.
Tree optimizer_of(const Tree& files) {
  Tree out;
  for (const auto& [name, bytes] : files)
    if (name.starts_with(kOptimFolder)) out.emplace(name.substr(kOptimFolder.size()), bytes);
  return out;
}

/// All but the optimizer and the manifests.
Tree rest_of(const Tree& files) {
  Tree out;
  for (const auto& [name, bytes] : files)
    if (!name.starts_with(kOptimFolder) && name != kManifest && name != kCopy && name != kAside)
      out.emplace(name, bytes);
  return out;
}

struct Found {
  std::string wrong{};
  bool demoted = false;
  bool has_optimizer = false;
};

/// Whether the files are those of a whole checkpoint, with its optimizer or without.
Found compare(const Tree& seen, const Known& one, bool settled) {
  Found out;
  const auto at = seen.find(one.unreadable ? kAside : kManifest);
  if (at == seen.end()) return {.wrong = "no manifest"};
  const auto manifest = universal::parse_manifest(at->second);
  if (!manifest) return {.wrong = manifest.error().message};
  if (manifest->id.hex() != one.id) return {.wrong = "another checkpoint's manifest"};
  const auto copy = seen.find(kCopy);
  if (copy == seen.end() || !universal::parse_manifest(copy->second)) return {.wrong = "no copy of the manifest"};
  if (settled && copy->second != at->second) return {.wrong = "two different manifests"};
  if (manifest->revision == 0 && at->second != one.files.at(kManifest)) return {.wrong = "another manifest"};
  if (rest_of(seen) != rest_of(one.files)) return {.wrong = "other files than were committed"};
  out.demoted = manifest->is_dropped(FileClass::optim);
  const Tree optimizer = optimizer_of(seen);
  out.has_optimizer = !optimizer.empty();
  if (out.has_optimizer && optimizer != optimizer_of(one.files)) return {.wrong = "half of its optimizer"};
  if (!out.demoted && !out.has_optimizer) return {.wrong = "its optimizer is lost"};
  if (settled && out.demoted && out.has_optimizer) return {.wrong = "demoted, and its optimizer is still with it"};
  return out;
}

std::optional<TrashRecord> record_of(const Snapshot& all, const std::string& thing) {
  const auto at = all.find(thing + ".json");
  if (at == all.end()) return std::nullopt;
  auto record = catalog::parse_record(at->second);
  return record ? std::optional(*std::move(record)) : std::nullopt;
}

/// Whether a record says that what it tells of is being removed, or is.
bool says_gone(const std::optional<TrashRecord>& record) {
  return record && (record->state == TrashRecord::State::purging || record->state == TrashRecord::State::purged);
}

/// Half removed: the files that make it a checkpoint went first.
std::string half_removed(const Tree& seen, const Known& one) {
  const bool marked = seen.contains(kManifest) || seen.contains(kCopy);
  const Tree rest = rest_of(seen);
  const Tree wanted = rest_of(one.files);
  for (const auto& [name, bytes] : rest)
    if (!wanted.contains(name) || wanted.at(name) != bytes) return "strange files in the trash: " + name;
  return marked && rest != wanted ? "half of it looks whole" : "";
}

}  // namespace

Tree tree_below(const MemoryDisk& disk, const std::string& directory) {
  return below(snapshot(disk), directory);
}

/// A later series began from an earlier step. What cannot be read just now does not tell where its series began.
bool StoreOracle::superseded(const Known& one) const {
  return std::any_of(known.begin(), known.end(), [&](const Known& other) {
    return !other.unreadable && other.run == one.run && other.series > one.series && other.series_from &&
           *other.series_from < one.step;
  });
}

std::set<const Known*> StoreOracle::must_stay(Time now, Duration grace, bool include_damaged,
                                              const std::set<std::uint64_t>& drop_series) const {
  std::set<const Known*> out;
  struct Run {
    const Known* newest = nullptr;
    const Known* newest_verified = nullptr;
    const Known* left_behind = nullptr;
    const Known* verified_left_behind = nullptr;
    bool anything_counts = false;
  };
  std::map<std::string, Run> runs;
  std::map<std::pair<std::string, std::uint64_t>, const Known*> last_of_series;
  std::set<std::pair<std::string, std::uint64_t>> unsure;
  for (const Known& one : known) {
    if (one.where != Where::live) continue;
    if (one.is_pinned(now) || one.reader || one.unreadable || one.marks_torn) out.insert(&one);
    if (one.known_damaged && !include_damaged) out.insert(&one);
    if (one.unreadable || one.known_damaged || one.damaged) {
      unsure.emplace(one.run, one.series);
      continue;
    }
    Run& run = runs[one.run];
    if (!superseded(one)) {
      run.anything_counts = true;
      run.newest = &one;  // in the order of their generations
      if (one.verified) run.newest_verified = &one;
      continue;
    }
    run.left_behind = &one;
    if (one.verified) run.verified_left_behind = &one;
    if (one.verified) last_of_series[{one.run, one.series}] = &one;
    const bool all_young = std::all_of(known.begin(), known.end(), [&](const Known& other) {
      return other.run != one.run || other.series <= one.series || !other.series_from ||
             catalog::elapsed(other.created, now) < grace;
    });
    if (all_young) out.insert(&one);
  }
  for (const auto& [name, run] : runs) {
    if (run.anything_counts) out.insert(run.newest_verified != nullptr ? run.newest_verified : run.newest);
    if (!run.anything_counts && run.left_behind != nullptr)
      out.insert(run.verified_left_behind != nullptr ? run.verified_left_behind : run.left_behind);
  }
  for (const auto& [series, one] : last_of_series)
    if (!unsure.contains(series) && !drop_series.contains(series.second)) out.insert(one);
  return out;
}

std::string StoreOracle::look(const MemoryDisk& disk, Time now, bool settled, const std::set<const Known*>& stays,
                              Duration grace) {
  const Snapshot all = snapshot(disk);
  for (Known& one : known) {
    const std::string what = one.run + "/" + one.name + ": ";
    const Tree live = below(all, one.path());
    const Tree trash = below(all, one.trash_path());
    const bool quiet = settled && !one.reader;
    if (!live.empty() && !trash.empty()) return what + "in both places";
    Where where = Where::gone;
    Found found;
    if (!live.empty()) {
      where = Where::live;
      found = compare(live, one, quiet);
      if (!found.wrong.empty()) return what + "in its run: " + found.wrong;
    } else if (!trash.empty() && !says_gone(record_of(all, one.trash_path()))) {
      where = Where::trash;
      found = compare(trash, one, quiet);
      if (!found.wrong.empty()) return what + "in the trash: " + found.wrong;
    } else {
      if (!says_gone(record_of(all, one.trash_path()))) return what + "lost without a record";
      const std::string half = half_removed(trash, one);
      if (!half.empty()) return what + half;
      one.removal_began = one.removal_began || rest_of(trash) != rest_of(one.files);
    }
    // Never backwards, nor too early.
    if (stays.contains(&one) && where != Where::live) return what + "was protected, and is deleted";
    if (stays.contains(&one) && found.demoted && !one.demoted) return what + "was protected, and is demoted";
    if (one.removal_began && where != Where::gone) return what + "is back from the dead";
    if (one.where == Where::live && where != Where::live) one.purge_at = now + grace;
    if (where == Where::gone && one.where != Where::gone && now < one.purge_at)
      return what + "was removed before its grace was over";

    if (where == Where::gone) {
      one.where = where;
      continue;
    }
    if (found.demoted && !one.demoted) one.optimizer_purge_at = now + grace;
    bool kept = found.has_optimizer;
    if (!kept) {
      const std::string place = one.trash_path() + ".optim";
      const Tree optimizer = below(all, place);
      const bool going = says_gone(record_of(all, place));
      kept = optimizer == optimizer_of(one.files) && !going;
      if (!kept && !going) return what + "its optimizer is lost without a record";
      one.optimizer_removal_began = one.optimizer_removal_began || optimizer != optimizer_of(one.files);
      if (kept && one.optimizer_removal_began) return what + "its optimizer is back from the dead";
      if (!kept && one.optimizer_kept && now < one.optimizer_purge_at)
        return what + "its optimizer was removed before its grace was over";
    }
    if (!settled) continue;
    one.where = where;
    one.demoted = found.demoted;
    one.optimizer_kept = kept;
  }
  return "";
}

}  // namespace ckpt::test
