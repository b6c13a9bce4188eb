#include "api/catalog/held_back.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "catalog/trash/strays.hpp"
#include "engine/io/shared_bytes.hpp"

namespace ckpt {
namespace {

/// Scanning a directory takes some 50 us. Of a larger plan the rest is checked when it is executed.
constexpr std::size_t kMostLookedInto = 4096;

}  // namespace

void hold_back(Io& io, PrunePlan& plan) {
  std::size_t looked = 0;
  std::size_t left = 0;
  for (PrunePart& part : plan.parts) {
    if (part.retention.aborted) continue;
    for (const std::uint32_t i : part.retention.order) {
      const catalog::Decision& decision = part.retention.decisions[i];
      const bool whole = decision.action == catalog::Action::trash;
      if (!whole && decision.action != catalog::Action::demote) continue;
      if (looked == kMostLookedInto) {
        ++left;
        continue;
      }
      ++looked;
      const catalog::Entry& entry = part.entries[i];
      const auto strays = catalog::find_strays_in_the_way(io, entry.path(plan.store), entry.foreign, whole);
      if (!strays || strays->empty()) continue;  // errors are reported when the plan is executed
      part.held_back[i] = strays_text(*strays);
      --(whole ? plan.trash_count : plan.demote_count);
      plan.freed_bytes -= std::min(plan.freed_bytes, decision.bytes_freed);
    }
  }
  if (left != 0)
    plan.warnings.push_back(
        fmt::format("{}: {} more checkpoints to delete were not searched for foreign files; "
                    "--apply searches them, and keeps each one that holds such files",
                    plan.store, left));
}

void count_shared_once(Io& io, PrunePlan& plan) {
  SharedBytes shared(io);
  for (PrunePart& part : plan.parts) {
    if (part.retention.aborted) continue;
    for (const std::uint32_t i : part.retention.order) {
      catalog::Decision& decision = part.retention.decisions[i];
      if (decision.action != catalog::Action::trash || part.held_back.contains(i)) continue;
      const std::uint64_t stays = std::min(shared.next(part.entries[i].path(plan.store)), decision.bytes_freed);
      decision.bytes_freed -= stays;
      part.retention.freed_bytes -= std::min(part.retention.freed_bytes, stays);
      plan.freed_bytes -= std::min(plan.freed_bytes, stays);
    }
  }
}

}  // namespace ckpt
