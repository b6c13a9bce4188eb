#include "catalog/index/links.hpp"

#include <map>
#include <optional>
#include <utility>

#include "catalog/index/rows.hpp"
#include "catalog/index/scan.hpp"
#include "engine/real_path.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::size_t kMostFolders = 1 << 16;  // of one checkpoint, that are looked into

class Links {
 public:
  Links(Io& io, const std::string& store, std::vector<Entry>& entries)
      : io_(io), store_(store), entries_(entries), root_(real_path(join_path(store, ""))) {}

  /// Links in a directory of checkpoints.
  void look_beside(const std::string& run) {
    const auto listed = io_.list(run_path(store_, run));
    if (!listed) return;
    for (const DirEntry& item : *listed) {
      if (!item.is_link) continue;
      Entry* target = led_to(join_path(run_path(store_, run), item.name));
      if (target == nullptr) continue;
      target->checkpoint.trackers.push_back(target->checkpoint.run == run ? item.name : run_below(run, item.name));
    }
  }

  /// Links in another tool's checkpoint.
  void look_inside(const Entry& holder) {
    const std::string own = place_of(holder);
    std::vector<std::string> folders{holder.path(store_)};
    for (std::size_t n = 0; n < folders.size() && folders.size() < kMostFolders; ++n) {
      const auto listed = io_.list(folders[n]);
      if (!listed) continue;
      for (const DirEntry& item : *listed) {
        const std::string path = join_path(folders[n], item.name);
        if (!item.is_link) {
          if (item.kind == FileInfo::Kind::directory) folders.push_back(path);
          continue;
        }
        Entry* target = led_to(path);
        if (target == nullptr || place_of(*target) == own) continue;
        auto& references = target->checkpoint.references;
        if (references.empty() || references.back() != own) references.push_back(own);
      }
    }
  }

 private:
  static std::string place_of(const Entry& entry) { return run_below(entry.checkpoint.run, entry.name); }

  /// The checkpoint that a link leads to, or into; null where it is none of `entries`.
  Entry* led_to(const std::string& link) {
    const auto real = real_path(link);
    if (!real || !root_) return nullptr;
    const std::string above = *root_ == "/" ? *root_ : *root_ + "/";
    if (!real->starts_with(above)) return nullptr;
    const std::string below = real->substr(above.size());
    if (by_place_.empty()) {
      for (Entry& entry : entries_) by_place_.emplace(place_of(entry), &entry);
    }
    for (std::size_t end = below.find('/');; end = below.find('/', end + 1)) {
      const auto found = by_place_.find(below.substr(0, end));
      if (found != by_place_.end()) return found->second;
      if (end == std::string::npos) return nullptr;
    }
  }

  Io& io_;
  const std::string& store_;
  std::vector<Entry>& entries_;
  std::optional<std::string> root_;
  std::map<std::string, Entry*> by_place_{};  // made when it is needed
};

}  // namespace

Result<> note_links(Io& io, const std::string& store, Database& database, std::vector<Entry>& entries) {
  if (entries.empty()) return {};
  CKPT_TRY(const auto runs, select_runs(database));
  Links links(io, store, entries);
  for (const KnownRun& run : runs) {
    if (!run.is_restless) continue;
    links.look_beside(run.run);
    CKPT_TRY(const auto foreign,
             select_entries(database, {.run = run.run, .passes = [](const Entry& entry) { return entry.foreign; }}));
    for (const Entry& entry : foreign) links.look_inside(entry);
  }
  return {};
}

}  // namespace ckpt::catalog
