#include "catalog/scan/links.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "catalog/scan/scan.hpp"
#include "engine/io/io.hpp"
#include "engine/io/real_path.hpp"

namespace ckpt::catalog {
namespace {

class Targets {
 public:
  Targets(const std::string& store, std::vector<Entry>& entries) : root_(find_real_path(join_path(store, ""))) {
    for (Entry& entry : entries) by_place_.emplace(run_below(entry.checkpoint.run, entry.name), &entry);
  }

  /// The checkpoint that a path leads to, or into; null if it is none of them.
  /// errors  io: this cannot be determined
  Result<Entry*> led_to(const std::string& path) const {
    if (!root_) return fail(root_.error());
    CKPT_TRY(const auto real, find_real_path(path));
    if (!real || !*root_) return nullptr;
    const std::string above = **root_ == "/" ? **root_ : **root_ + "/";
    if (!real->starts_with(above)) return nullptr;
    const std::string below = real->substr(above.size());
    for (std::size_t end = below.find('/');; end = below.find('/', end + 1)) {
      const auto found = by_place_.find(below.substr(0, end));
      if (found != by_place_.end()) return found->second;
      if (end == std::string::npos) return nullptr;
    }
  }
  /// Of a place in the store: absolute, as the marks of virtual checkpoints have it.
  std::string path_of(const std::string& place) const { return join_path(root_ && *root_ ? **root_ : "", place); }

 private:
  Result<std::optional<std::string>> root_;
  std::map<std::string, Entry*> by_place_{};
};

/// The target of a link or a tracker, by its text alone.
std::string destination(const std::string& store, const FoundLink& link) {
  if (link.leads.starts_with('/')) return link.leads;
  const std::string place = join_path(run_path(store, link.run), link.holder);
  return join_path(place, link.leads.empty() ? link.path : link.leads);
}

/// An unreadable link or tracker protects everything that it may name.
void name_all(const FoundLink& link, bool of_run_alone, std::vector<Entry>& entries) {
  const std::string path = join_path(link.holder, link.path);
  const std::string directory = run_below(link.run, path);
  for (Entry& entry : entries) {
    const std::string& run = entry.checkpoint.run;
    if (of_run_alone && run != link.run && run != directory) continue;
    const std::string shown = run == link.run ? path : directory;
    entry.checkpoint.trackers.push_back(shown + std::string(of_run_alone ? kCannotBeRead : kCannotBeFollowed));
  }
}

}  // namespace

void note_links(const std::string& store, const std::vector<FoundLink>& links, std::vector<Entry>& entries) {
  if (links.empty() || entries.empty()) return;
  const Targets targets(store, entries);
  bool all_named = false;
  for (const FoundLink& link : links) {
    if (link.unreadable) {
      name_all(link, true, entries);
      continue;
    }
    const auto led = targets.led_to(destination(store, link));
    if (!led) {
      if (!all_named) name_all(link, false, entries);
      all_named = true;
      continue;
    }
    Entry* target = *led;
    if (target == nullptr) continue;
    Checkpoint& checkpoint = target->checkpoint;
    if (link.holder.empty()) {
      checkpoint.trackers.push_back(checkpoint.run == link.run ? link.path : run_below(link.run, link.path));
      continue;
    }
    if (checkpoint.run == link.run && target->name == link.holder) continue;
    const std::string own = run_below(link.run, link.holder);
    if (!checkpoint.references.empty() && checkpoint.references.back() == own) continue;
    const auto says_so = [&](const std::string& known) { return known == own || known == targets.path_of(own); };
    if (std::ranges::none_of(checkpoint.references, says_so)) checkpoint.references.push_back(own);
  }
}

}  // namespace ckpt::catalog
