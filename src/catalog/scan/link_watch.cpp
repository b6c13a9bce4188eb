#include "catalog/scan/link_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckpt::catalog {

LinkWatch::LinkWatch(Io& io, std::string store, std::vector<std::string> runs, ForeignNames names)
    : io_(io), store_(std::move(store)), runs_(std::move(runs)), tools_{.names = std::move(names)} {}

void LinkWatch::check() {
  const auto start = std::chrono::steady_clock::now();
  named_.clear();
  links_.clear();
  for (const std::string& run : runs_) {
    auto folder = list_folder(io_, store_, run, tools_);
    if (!folder) {
      links_.push_back({.run = run_above(run), .path = run, .unreadable = true});
      continue;
    }
    if (!*folder) continue;
    std::ranges::move((*folder)->links, std::back_inserter(links_));
    std::ranges::copy_if((*folder)->places, std::back_inserter(named_),
                         [](const EntryPlace& place) { return !place.trackers.empty(); });
  }
  looked_ = std::chrono::steady_clock::now();
  took_ = looked_ - start;
}

Result<> LinkWatch::check_unnamed(const Entry& entry) {
  const bool is_fresh = took_ > std::chrono::milliseconds(1) && std::chrono::steady_clock::now() - looked_ < took_;
  if (!is_fresh) check();
  const auto named = [](const std::string& by) {
    return fail(Errc::not_done, fmt::format("named since the plan was made: {}", by));
  };
  for (const EntryPlace& place : named_) {
    if (place.run == entry.checkpoint.run && place.name == entry.name) return named(place.trackers.front());
  }
  if (links_.empty()) return {};
  std::vector<Entry> one(1, entry);
  one.front().checkpoint.trackers.clear();
  one.front().checkpoint.references.clear();
  note_links(store_, links_, one);
  const Checkpoint& seen = one.front().checkpoint;
  if (!seen.trackers.empty()) return named(seen.trackers.front());
  if (!seen.references.empty()) return named(seen.references.front());
  return {};
}

}  // namespace ckpt::catalog
