#include "api/catalog/remove.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/catalog/undelete.hpp"

namespace ckpt {
namespace {

/// Of a name that the catalog does not know: whether it is in the trash.
Error with_trash_hint(Io& io, const RemoveRequest& request, Error error) {
  const auto trash = catalog::list_trash(io, join_path(request.store, ""), catalog::TrashScope::present);
  if (error.code != Errc::not_found || !trash) return error;
  for (const std::string& name : request.names) {
    const bool there = std::ranges::any_of(*trash, [&](const catalog::TrashEntry& entry) {
      return entry.present && names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id);
    });
    if (there && error.message.starts_with(name + ":")) error.hint = "already in the trash: see 'ckpt list --trash'";
  }
  return error;
}

}  // namespace

Result<RemoveReport> remove_checkpoints(Session& session, const RemoveRequest& request) {
  PruneRequest asked{
      .store = request.store, .named = request.names, .carries_out = !request.dry_run, .now = request.now};
  auto plan = plan_prune(session, asked);
  if (!plan) return fail(with_trash_hint(session.io, request, std::move(plan).error()));
  RemoveReport out{.warnings = plan->warnings};
  PruneReport report;
  if (!request.dry_run && plan->trash_count != 0) {
    CKPT_TRY(report,
             carry_out(session, *plan, {.now = request.now, .by = request.by, .lock_timeout = request.lock_timeout}));
    out.stopped = report.stopped;
  }
  for (std::size_t p = 0; p < plan->parts.size(); ++p) {
    const PrunePart& part = plan->parts[p];
    const catalog::ShortNames labels(part.entries);
    for (const std::uint32_t i : part.retention.order) {
      if (!part.chosen[i]) continue;
      const catalog::Checkpoint& one = part.checkpoints[i];
      // The same name means another checkpoint once this one is gone.
      const bool is_only = std::ranges::count_if(part.checkpoints, [&](const catalog::Checkpoint& other) {
                             return other.run == one.run && other.step == one.step;
                           }) == 1;
      NamedRemoval removal{.run = one.run,
                           .name = part.entries[i].name,
                           .label = is_only ? labels.of(part.entries[i]) : labels.full(part.entries[i]),
                           .step = one.step,
                           .bytes = one.bytes,
                           .kept_until = request.now + part.policy.trash.ttl};
      const auto step =
          std::ranges::find_if(report.steps, [&](const PruneStep& done) { return done.part == p && done.index == i; });
      if (planned_action(part, i) != catalog::Action::trash) {
        removal.refused = catalog::why_kept(part.retention.decisions[i], one, part.checkpoints, part.policy);
        if (part.held_back.contains(i)) removal.refused = why_text(part, i);
      } else if (step != report.steps.end() && !step->done) {
        removal.refused = step->kept_because;
      } else if (step == report.steps.end() && !request.dry_run) {
        removal.refused = report.stopped ? "stopped before it" : "another process deleted it";
      }
      out.removals.push_back(std::move(removal));
    }
  }
  return out;
}

}  // namespace ckpt
