#include "api/catalog/prune_decider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/catalog/look_again.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "catalog/support.hpp"

namespace ckpt {
namespace {

using catalog::Action;
using catalog::Entry;

bool goes(const catalog::Decision& decision) {
  return decision.action == Action::trash || decision.action == Action::demote;
}

}  // namespace

Result<> PruneDecider::not_stopped() const {
  if (!session_.is_stopped()) return {};
  return fail(Errc::interrupted, request_.store + ": stopped");
}

Result<> PruneDecider::decide(PrunePart& part, std::vector<std::string>& warnings) {
  left_.clear();
  CKPT_CHECK(decide_until_stable(part, warnings));
  if (!left_.empty())
    warnings.push_back(
        fmt::format("{}: {} kept checkpoints that justify deletions were not checked; --apply checks them, and deletes "
                    "less if one is damaged",
                    request_.store, left_.size()));
  return {};
}

Result<> PruneDecider::decide_until_stable(PrunePart& part, std::vector<std::string>& warnings) {
  situation_.first_run = part.first_run;
  situation_.chosen = part.chosen;
  for (;;) {
    CKPT_CHECK(not_stopped());
    CKPT_TRY(part.retention, catalog::retain(part.checkpoints, part.policy, situation_));
    if (part.retention.trash_count + part.retention.demote_count == 0) return {};
    CKPT_TRY(const bool is_needed, note_own_links(part, warnings));
    if (is_needed) continue;
    std::vector<std::uint32_t> going;
    for (const std::uint32_t i : part.retention.order) {
      if (goes(part.retention.decisions[i])) going.push_back(i);
    }
    const auto likely = catalog::likely_support(part.checkpoints, part.policy, part.retention);
    CKPT_TRY(const Checks first, check(part, likely, runs_of(part, going), warnings));
    if (first.damaged) continue;
    CKPT_TRY(const auto doubtful,
             catalog::unsupported(part.checkpoints, part.policy, situation_, part.retention, sure_of(part)));
    if (doubtful.empty()) return {};
    // Which checkpoints justify deletions is unknown: all that stay are checked.
    CKPT_TRY(const Checks all, check(part, part.retention.order, runs_of(part, doubtful), warnings));
    if (!all.damaged && !all.any) return {};
  }
}

/// Notes which checkpoints of the part the links in others lead into. True if there are any: the part is decided again.
Result<bool> PruneDecider::note_own_links(PrunePart& part, std::vector<std::string>& warnings) {
  if (!own_links_) CKPT_CHECK(find_own_links(warnings));
  if (own_links_->empty() || !linked_.insert(&part).second) return false;
  catalog::note_links(join_path(request_.store, ""), *own_links_, part.entries);
  bool any = false;
  for (std::size_t i = 0; i < part.entries.size(); ++i) {
    const catalog::Checkpoint& noted = part.entries[i].checkpoint;
    catalog::Checkpoint& one = part.checkpoints[i];
    if (noted.references.size() == one.references.size() && noted.trackers.size() == one.trackers.size()) continue;
    one.references = noted.references;
    one.trackers = noted.trackers;
    any = true;
  }
  return any;
}

Result<> PruneDecider::find_own_links(std::vector<std::string>& warnings) {
  own_links_.emplace();
  const std::size_t most = request_.carries_out ? own_.size() : std::min(own_.size(), request_.most_looked_into);
  for (std::size_t i = 0; i < own_.size(); ++i) {
    if (i >= most && !own_[i].is_virtual) continue;
    CKPT_CHECK(not_stopped());
    std::ranges::move(catalog::find_own_links(session_.io, join_path(request_.store, ""), own_[i]),
                      std::back_inserter(*own_links_));
  }
  if (most < own_.size())
    warnings.push_back(
        fmt::format("{}: links in {} checkpoints were not followed; --apply follows them, and keeps their targets",
                    request_.store, own_.size() - most));
  return {};
}

/// The runs that may justify decisions; empty: all.
std::set<std::string> PruneDecider::runs_of(const PrunePart& part, const std::vector<std::uint32_t>& indices) {
  std::set<std::string> out;
  if (part.policy.group_by != std::vector<std::string>{"run"}) return out;
  for (const std::uint32_t i : indices) out.insert(part.checkpoints[i].run);
  return out;
}

std::vector<bool> PruneDecider::sure_of(const PrunePart& part) const {
  std::vector<bool> out(part.entries.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (part.retention.decisions[i].action == Action::trash) continue;  // counts unchanged
    out[i] = is_whole(part.checkpoints[i]) && checked_.contains(part.entries[i].path(request_.store));
  }
  return out;
}

/// The quick check of the checkpoints that stay and were not checked before.
Result<PruneDecider::Checks> PruneDecider::check(PrunePart& part, const std::vector<std::uint32_t>& indices,
                                                 const std::set<std::string>& runs,
                                                 std::vector<std::string>& warnings) {
  std::vector<std::uint32_t> chosen;
  std::vector<const Entry*> known;
  for (const std::uint32_t i : indices) {
    const catalog::Checkpoint& one = part.checkpoints[i];
    if (!is_whole(one) || part.retention.decisions[i].action == Action::trash) continue;
    if (!runs.empty() && !runs.contains(one.run)) continue;
    std::string path = part.entries[i].path(request_.store);
    if (checked_.contains(path)) continue;
    if (!request_.carries_out && checked_.size() >= request_.most_looked_into) {
      left_.insert(i);
      continue;
    }
    checked_.insert(std::move(path));
    chosen.push_back(i);
    known.push_back(&part.entries[i]);
  }
  Checks out{.any = !chosen.empty()};
  CKPT_TRY(std::vector<RecheckedCheckpoint> looks, look_again(session_, request_.store, known));
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    RecheckedCheckpoint& look = looks[n];
    if (look.reason.empty()) continue;
    out.damaged = true;
    Entry& entry = part.entries[chosen[n]];
    catalog::Checkpoint& one = part.checkpoints[chosen[n]];
    warnings.push_back(fmt::format("{}: not counted as kept: {}", entry.path(request_.store), look.reason));
    if (look.now) {
      entry = *std::move(look.now);
      catalog::drop_ownerless(session_.io, request_.store, entry);
      const catalog::Checkpoint before = std::exchange(one, entry.checkpoint);
      one.undeleted_until = before.undeleted_until;
      // Facts from links are not stored in it.
      one.trackers.insert(one.trackers.end(), before.trackers.begin(), before.trackers.end());
      one.references.insert(one.references.end(), before.references.begin(), before.references.end());
    } else {
      one.state = look.state;
    }
  }
  return out;
}

}  // namespace ckpt
