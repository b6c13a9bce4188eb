#include "catalog/index/links.hpp"

#include <map>
#include <optional>

#include "catalog/index/scan.hpp"
#include "engine/io.hpp"
#include "engine/real_path.hpp"

namespace ckpt::catalog {
namespace {

class Targets {
 public:
  Targets(const std::string& store, std::vector<Entry>& entries) : root_(real_path(join_path(store, ""))) {
    for (Entry& entry : entries) by_place_.emplace(run_below(entry.checkpoint.run, entry.name), &entry);
  }

  /// The checkpoint that a link leads to, or into; null where it is none of them.
  Entry* led_to(const std::string& link) const {
    const auto real = real_path(link);
    if (!real || !root_) return nullptr;
    const std::string above = *root_ == "/" ? *root_ : *root_ + "/";
    if (!real->starts_with(above)) return nullptr;
    const std::string below = real->substr(above.size());
    for (std::size_t end = below.find('/');; end = below.find('/', end + 1)) {
      const auto found = by_place_.find(below.substr(0, end));
      if (found != by_place_.end()) return found->second;
      if (end == std::string::npos) return nullptr;
    }
  }

 private:
  std::optional<std::string> root_;
  std::map<std::string, Entry*> by_place_{};
};

}  // namespace

void note_links(const std::string& store, const std::vector<FoundLink>& links, std::vector<Entry>& entries) {
  if (links.empty() || entries.empty()) return;
  const Targets targets(store, entries);
  for (const FoundLink& link : links) {
    const std::string place = join_path(run_path(store, link.run), link.holder);
    Entry* target = targets.led_to(join_path(place, link.path));
    if (target == nullptr) continue;
    Checkpoint& checkpoint = target->checkpoint;
    if (link.holder.empty()) {
      checkpoint.trackers.push_back(checkpoint.run == link.run ? link.path : run_below(link.run, link.path));
      continue;
    }
    if (checkpoint.run == link.run && target->name == link.holder) continue;
    const std::string own = run_below(link.run, link.holder);
    if (checkpoint.references.empty() || checkpoint.references.back() != own) checkpoint.references.push_back(own);
  }
}

}  // namespace ckpt::catalog
