#include "api/catalog/prune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "api/catalog/held_back.hpp"
#include "api/catalog/look_again.hpp"
#include "api/catalog/prune_decider.hpp"
#include "api/catalog/prune_scan.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_place.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/scan/link_watch.hpp"
#include "catalog/scan/links.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "catalog/scan/resume_sources.hpp"
#include "catalog/scan/scan.hpp"
#include "convert/foreign_names.hpp"
#include "engine/io/host.hpp"

namespace ckpt {
namespace {

using catalog::Action;
using catalog::Deleter;
using catalog::Entry;
using catalog::State;
using catalog::TrashEntry;

/// Checked between the steps.
Result<> not_stopped(const Session& session, const std::string& store) {
  if (!session.is_stopped()) return {};
  return fail(Errc::interrupted, store + ": stopped");
}

/// Nothing if free space is unknown: that is not lack of space.
std::optional<catalog::Space> space_of(Io& io, const std::string& store, const std::vector<TrashEntry>& trash) {
  const auto free = io.free_bytes(store);
  if (!free) return std::nullopt;
  catalog::Space out{.free_bytes = *free, .total_bytes = std::max(volume_bytes(store), *free)};
  for (const TrashEntry& entry : trash) {
    if (entry.present) out.trash_bytes += entry.record.bytes;
  }
  if (const auto recycled = catalog::measure_recycled(io, store)) out.trash_bytes += recycled->bytes;
  return out;
}

/// Of the deleted checkpoints, the newest that a save could reuse, as many as the policy allows.
std::vector<std::uint32_t> choose_recycled(const PrunePart& part) {
  std::vector<std::uint32_t> out;
  if (part.policy.trash.recycle == 0 || part.retention.aborted) return out;
  for (const std::uint32_t i : part.retention.order) {
    const Action action = part.retention.decisions[i].action;
    const bool goes = action == Action::trash || action == Action::demote;
    if (goes && !part.entries[i].foreign && !part.held_back.contains(i)) out.push_back(i);
  }
  std::ranges::stable_sort(out, std::ranges::greater(), [&](std::uint32_t i) { return part.checkpoints[i].created; });
  if (out.size() > part.policy.trash.recycle) out.resize(static_cast<std::size_t>(part.policy.trash.recycle));
  return out;
}

/// How many sets may wait in recycle/ for the next save.
std::uint64_t most_recycled(const PrunePlan& plan) {
  std::uint64_t most = 0;
  for (const PrunePart& part : plan.parts) most = std::max(most, part.policy.trash.recycle);
  return most;
}

/// What executing the plan removes permanently from the trash, by time alone.
TrashSum purge_due(const std::vector<TrashEntry>& trash, catalog::Time now) {
  TrashSum out;
  for (const TrashEntry& entry : trash) {
    const bool over = entry.present && entry.recorded && entry.record.purge_at <= now &&
                      entry.record.state != catalog::TrashRecord::State::restoring;
    if (!over) continue;
    ++out.count;
    out.bytes += std::min(entry.record.bytes, UINT64_MAX - out.bytes);
  }
  return out;
}

/// Whether nothing was said or done since that would have made the decision another one.
Result<bool> is_unchanged(Io& io, const std::string& store, const Entry& planned, catalog::Time now) {
  CKPT_TRY(const auto place, place_of(io, store, planned));
  if (!place) return false;
  auto seen = catalog::read_entry(io, store, *place);
  if (!seen) return false;
  catalog::drop_ownerless(io, store, *seen);
  const catalog::Checkpoint& one = seen->checkpoint;
  const bool pinned = std::any_of(one.pins.begin(), one.pins.end(),
                                  [&](const catalog::Pin& pin) { return !pin.until || *pin.until > now; });
  return one.id == planned.checkpoint.id && one.state == planned.checkpoint.state &&
         one.tags == planned.checkpoint.tags && same_metrics(one, planned.checkpoint) &&
         one.created == planned.checkpoint.created && one.bytes == planned.checkpoint.bytes &&
         seen->revision == planned.revision && seen->directory == planned.directory && !pinned &&
         !one.marks_unreadable && one.references.empty() && one.trackers.empty() && !one.link;
}

const char* outcome_text(LockOutcome outcome) {
  switch (outcome) {
    case LockOutcome::read:
      return "being read";
    case LockOutcome::unknown:
      return "cannot tell whether it is in use";
    case LockOutcome::vanished:
      return "changed since the plan was made";
    case LockOutcome::free:
      break;
  }
  return "";
}

Deleter::Deletion deletion_of(Io& io, const PrunePlan& plan, const PrunePart& part, std::uint32_t i,
                              const CarryOut& how, catalog::LinkWatch& links) {
  const bool whole = part.retention.decisions[i].action == Action::trash;
  const Entry& entry = part.entries[i];
  const catalog::Checkpoint& one = part.checkpoints[i];
  return {.run = one.run,
          .name = entry.name,
          .record = {.id = one.id,
                     .step = one.step,
                     .series = one.series,
                     .series_from = one.series_from,
                     .series_after = one.series_after,
                     .created = one.created,
                     .committed = one.committed == catalog::Time::min() ? std::nullopt : std::optional(one.committed),
                     .bytes = whole ? one.bytes : one.optimizer_bytes,
                     .deleted = how.now,
                     .by = how.by,
                     .why = why_text(part, i),
                     .policy = part.policy.name.empty() ? plan.policies.source
                                                        : part.policy.name + " of " + plan.policies.source,
                     .purge_at = std::ranges::count(part.recycled, i) != 0 ? how.now : how.now + part.policy.trash.ttl},
          .still = [&io, &plan, &entry, &how, &links](const std::string&) -> Result<bool> {
            CKPT_CHECK(links.check_unnamed(entry));
            return is_unchanged(io, plan.store, entry, how.now);
          }};
}

/// After a demotion only the rest is left: it is checked before.
Result<LockOutcome> demote(Session& session, Deleter& trash, const Deleter::Deletion& deletion,
                           const std::string& store) {
  const std::string run = catalog::run_path(store, deletion.run);
  CKPT_TRY(const VerifyReport checked, verify(session, {.path = join_path(run, deletion.name), .quick = true}));
  if (!checked.ok) {
    const std::string damage = checked.damage.empty() ? "damage was found" : checked.damage.front().text;
    return fail(Errc::corrupt, "its weights are incomplete: " + damage);
  }
  return trash.demote(deletion);
}

/// Whether another process was faster: there is nothing to do, nor to report.
bool is_gone(Io& io, const std::string& store, const Entry& entry) {
  const auto there = io.stat(entry.path(store));
  return !there && there.error().code == Errc::not_found;
}

/// Whether the volume is so full that the trash does not wait for its grace.
bool is_short(const PrunePlan& plan, const std::optional<catalog::Space>& space) {
  return space && std::any_of(plan.parts.begin(), plan.parts.end(), [&](const PrunePart& part) {
           const auto& limit = part.policy.trash.purge_early_when_free_below;
           if (!limit) return false;
           if (!limit->percent) return space->free_bytes < limit->bytes;
           return static_cast<double>(space->free_bytes) <
                  static_cast<double>(space->total_bytes) * *limit->percent / 100;
         });
}

/// Whether less space is free than pressure requires, even if everything but the trash were given up.
bool is_pressed(Io& io, const PrunePlan& plan, catalog::Time now) {
  std::uint64_t wanted = 0;
  for (const PrunePart& part : plan.parts) wanted = std::max(wanted, part.retention.wanted_free);
  if (wanted == 0) return false;
  const auto free = io.free_bytes(plan.store);
  const auto trash = catalog::list_trash(io, plan.store);
  if (!free || !trash) return false;
  std::uint64_t bytes = *free;
  for (const TrashEntry& entry : *trash) {
    const bool waits = entry.present && entry.recorded && entry.record.purge_at > now;
    if (waits) bytes += std::min(entry.record.bytes, UINT64_MAX - bytes);
  }
  return bytes < wanted;
}

void plan_recycling(Io& io, PrunePlan& plan, catalog::Time now) {
  const bool wanted =
      std::ranges::any_of(plan.parts, [](const PrunePart& part) { return part.policy.trash.recycle != 0; });
  if (!wanted) return;
  if (!io.recycles(plan.store)) {
    plan.warnings.emplace_back(kNoRecycling);
    return;
  }
  if (is_short(plan, space_of(io, plan.store, {})) || is_pressed(io, plan, now)) return;
  for (PrunePart& part : plan.parts) {
    part.recycled = choose_recycled(part);
    for (const std::uint32_t i : part.recycled) plan.recycled_bytes += part.retention.decisions[i].bytes_freed;
  }
  plan.freed_bytes -= std::min(plan.freed_bytes, plan.recycled_bytes);
}

void add(Deleter::Purged& to, Deleter::Purged more) {
  to.gone.insert(to.gone.end(), std::make_move_iterator(more.gone.begin()), std::make_move_iterator(more.gone.end()));
  to.bytes += more.bytes;
  to.recycled_count += more.recycled_count;
  to.recycled_bytes += more.recycled_bytes;
  to.emptied_bytes += more.emptied_bytes;
  to.kept = std::move(more.kept);  // the next purge has tried again
}

/// Purges by the policies' grace; recycle/ is emptied before the trash.
Result<> purge_trash(Session& session, const PrunePlan& plan, const CarryOut& how, bool pressed, Deleter& trash,
                     PruneReport& report) {
  Io& io = session.io;
  std::uint64_t sets = most_recycled(plan);
  if (pressed || is_short(plan, space_of(io, plan.store, {}))) {
    sets = 0;
    CKPT_TRY(Deleter::Purged given_up, trash.purge(
                                           how.now, how.by, [](const TrashEntry&) { return false; }, 0));
    add(report.purged, std::move(given_up));
  }
  report.purged_early = is_short(plan, space_of(io, plan.store, {}));
  const auto due = [&](const TrashEntry& entry) { return report.purged_early || entry.record.purge_at <= how.now; };
  CKPT_TRY(Deleter::Purged purged, trash.purge(how.now, how.by, due, sets, session.stop));
  report.stopped = purged.stopped;
  add(report.purged, std::move(purged));
  return {};
}

/// A deletion begins with a record, which needs a block or two. If the disk has none, the catalog is removed: it can be
/// rebuilt, and otherwise nothing could be deleted when it is needed most. False if there is no catalog.
bool give_up_index(Io& io, const std::string& store) {
  bool given_up = false;
  for (const char* suffix : {"", "-wal", "-shm", "-journal", ".damaged"})
    given_up = io.unlink(catalog::catalog_file(store) + suffix).has_value() || given_up;
  return given_up;
}

/// If there is no room for a record: frees some without loss.
class RoomMaker {
 public:
  RoomMaker(Session& session, const PrunePlan& plan, const CarryOut& how, Deleter& trash, PruneReport& report)
      : session_(session), plan_(plan), how_(how), trash_(trash), report_(report) {}

  /// Retries, with the space of the catalog; and with that of due trash and recycle/.
  template <class Act>
  auto with_room(const Act& act) {
    auto done = act();
    const auto is_full = [&] { return !done && done.error().code == Errc::no_space; };
    if (is_full() && give_up_index(session_.io, plan_.store)) done = act();
    if (is_full() && purge_due()) done = act();
    return done;
  }

 private:
  /// False if that freed nothing, or was done before.
  bool purge_due() {
    if (std::exchange(purged_, true)) return false;
    auto purged = trash_.purge(
        how_.now, how_.by, [&](const TrashEntry& entry) { return entry.record.purge_at <= how_.now; }, 0,
        session_.stop);
    if (!purged) return false;
    const bool freed = !purged->gone.empty() || purged->emptied_bytes != 0;
    add(report_.purged, *std::move(purged));
    return freed;
  }

  Session& session_;
  const PrunePlan& plan_;
  const CarryOut& how_;
  Deleter& trash_;
  PruneReport& report_;
  bool purged_ = false;
};

/// The error of a full disk, for a user who wants to free space.
Error without_room(Error error) {
  if (error.code != Errc::no_space) return error;
  error.hint = "free a few KiB on the disk, then retry";
  return error;
}

/// An executed policy is no longer new.
Result<> remember_policies(Io& io, const PrunePlan& plan) {
  if (plan.aborted) return {};
  KnownPolicies known = read_known_policies(io, plan.store);
  std::vector<std::string> fingerprints;
  AppliedPolicies applied{.source = plan.policies.source};
  for (const PrunePart& part : plan.parts) {
    fingerprints.push_back(part.fingerprint);
    applied.policies.push_back(catalog::policy_text(part.policy));
  }
  if (known.fingerprints[plan.known_as] == fingerprints && known.last == applied) return {};
  known.fingerprints[plan.known_as] = std::move(fingerprints);
  known.last = std::move(applied);
  return write_known_policies(io, plan.store, known);
}

/// A slip of the pen in the policy would keep everything, until the disk is full.
void stop_at_unknown_metric(PrunePart& part) {
  const catalog::Retention& plan = part.retention;
  const bool matters =
      plan.trash_count + plan.demote_count != 0 || std::ranges::any_of(plan.decisions, catalog::is_kept_unmeasured);
  if (!matters) return;
  std::set<std::string> known;
  for (const catalog::Checkpoint& one : part.checkpoints) {
    for (const auto& [name, value] : one.metrics) known.insert(name);
  }
  for (const catalog::Rule& rule : part.policy.keep) {
    const bool counts = rule.kind == catalog::Rule::Kind::best && rule.missing == catalog::Rule::Missing::drop;
    if (!counts || known.contains(rule.metric)) continue;
    part.unknown_metric = {.rule = rule.id, .metric = rule.metric, .known = {known.begin(), known.end()}};
    part.retention.aborted = fmt::format("rule '{}': no checkpoint has the metric '{}'", rule.id, rule.metric);
    return;
  }
}

/// Finishes interrupted deletions, which would otherwise look like changes since the plan. An active deleter has done
/// so; and obstacles are reported when the plan is executed.
void settle_trash(Io& io, const std::string& store) {
  if (io.stat(catalog::trash_path(store)))
    static_cast<void>(Deleter::open(io, store, std::chrono::steady_clock::now(), foreign_names()));
}

/// Of virtual checkpoints that are gone, from what stays. They protect nothing: failures are ignored.
void drop_marks(Io& io, const PrunePlan& plan) {
  for (const OwnerlessMark& mark : plan.ownerless)
    static_cast<void>(catalog::remove_ownerless(io, mark.checkpoint, mark.owner));
}

}  // namespace

Action planned_action(const PrunePart& part, std::size_t index) {
  return part.held_back.contains(static_cast<std::uint32_t>(index)) ? Action::keep
                                                                    : part.retention.decisions[index].action;
}

std::string why_text(const PrunePart& part, std::size_t index) {
  const auto held = part.held_back.find(static_cast<std::uint32_t>(index));
  if (held != part.held_back.end())
    return held->second + ", which ckpt did not put there: move it away to allow the deletion";
  return catalog::why(part.retention.decisions[index], part.checkpoints[index], part.checkpoints, part.policy);
}

Result<PrunePlan> plan_prune(Session& session, const PruneRequest& request) {
  PrunePlan plan{.store = join_path(request.store, "")};
  plan.by_name = !request.named.empty();
  CKPT_CHECK(check_outermost(session.io, plan.store));
  CKPT_TRY(plan.policies, plan.by_name ? read_removal_policies(session.io, plan.store)
                                       : read_policies(session.io, plan.store, request.policy));
  if (request.carries_out) settle_trash(session.io, plan.store);
  CKPT_CHECK(not_stopped(session, plan.store));
  CKPT_TRY(ScannedStore scanned, read_store(session.io, plan.store, request));
  CKPT_CHECK(not_stopped(session, plan.store));
  catalog::TrashFaults faults;
  CKPT_TRY(const auto trash, catalog::list_trash(session.io, plan.store, catalog::TrashScope::all, &faults));
  CKPT_CHECK(check_seen(faults.unread, concerned_runs(request, scanned)));
  CKPT_CHECK(check_runs(session.io, request, trash, scanned));
  note_undeleted(trash, request.now, scanned.entries);
  catalog::note_resume_sources(scanned.entries);
  plan.directories = std::move(scanned.directories);
  plan.ownerless = std::move(scanned.ownerless);
  plan.purge_due = purge_due(trash, request.now);
  const KnownPolicies known = read_known_policies(session.io, plan.store);
  plan.known_as = plan.policies.source;
  for (const std::string& run : request.runs) plan.known_as += " for " + run;
  // Options that widen the deletion make it a different policy, which needs its own approval.
  if (request.include_damaged) plan.known_as += " with --include-damaged";
  for (const std::uint64_t series : request.drop_series) plan.known_as += fmt::format(" with --drop-series {}", series);
  plan.warnings = std::move(scanned.warnings);
  plan.unread = std::move(scanned.unread);
  for (const catalog::Policy& policy : plan.policies.policies) {
    PrunePart part{.policy = policy, .fingerprint = catalog::fingerprint(policy).hex()};
    const auto seen = known.fingerprints.find(plan.known_as);
    part.first_run = seen == known.fingerprints.end() ||
                     std::find(seen->second.begin(), seen->second.end(), part.fingerprint) == seen->second.end();
    plan.parts.push_back(std::move(part));
  }
  std::set<std::string> runs;
  std::set<std::string> ruleless;
  if (plan.parts.size() == 1) {
    plan.parts.front().entries.reserve(scanned.entries.size());
    plan.parts.front().checkpoints.reserve(scanned.entries.size());
  }
  if (!plan.by_name) plan.elsewhere = nearer_policies(session.io, plan.store, scanned.entries);
  for (Entry& entry : scanned.entries) {
    const std::string& run = entry.checkpoint.run;
    const catalog::Policy* policy = catalog::policy_of(plan.policies.policies, run);
    if (policy == nullptr || plan.elsewhere.contains(run)) {
      ruleless.insert(run);
      plan.undecided.push_back(std::move(entry));
      continue;
    }
    runs.insert(run);
    PrunePart& part = plan.parts[static_cast<std::size_t>(policy - plan.policies.policies.data())];
    part.checkpoints.push_back(entry.checkpoint);
    if (plan.by_name) part.chosen.push_back(scanned.named.contains({run, entry.name}));
    part.entries.push_back(std::move(entry));
  }
  plan.ruleless.assign(ruleless.begin(), ruleless.end());
  CKPT_TRY(auto births, catalog::births_of_runs(session.io, plan.store, trash, runs));
  PruneDecider decider(session, request,
                       {.now = request.now,
                        .space = space_of(session.io, plan.store, trash),
                        .births = std::move(births),
                        .approved = request.approved || plan.by_name,
                        .include_damaged = request.include_damaged || plan.by_name,
                        .drop_series = request.drop_series},
                       scanned.own);
  for (PrunePart& part : plan.parts) {
    CKPT_CHECK(decider.decide(part, plan.warnings));
    stop_at_unknown_metric(part);
    for (const std::string& warning : part.retention.warnings) plan.warnings.push_back(warning);
    plan.aborted = plan.aborted || part.retention.aborted.has_value();
    plan.trash_count += part.retention.trash_count;
    plan.demote_count += part.retention.demote_count;
    plan.freed_bytes += part.retention.freed_bytes;
  }
  if (!request.carries_out) hold_back(session.io, plan);
  count_shared_once(session.io, plan);
  if (!plan.by_name) plan_recycling(session.io, plan, request.now);
  return plan;
}

Result<PruneReport> carry_out(Session& session, const PrunePlan& plan, const CarryOut& how) {
  Io& io = session.io;
  CKPT_CHECK(not_stopped(session, plan.store));
  CKPT_TRY(const auto trash,
           Deleter::open(io, plan.store, std::chrono::steady_clock::now() + how.lock_timeout, foreign_names()));
  const bool pressed = is_pressed(io, plan, how.now);  // as planned: without the checkpoints that go to the trash now
  PruneReport report;
  RoomMaker room(session, plan, how, *trash, report);
  catalog::LinkWatch links(io, plan.store, plan.directories, foreign_names());
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const PrunePart& part = plan.parts[p];
    if (part.retention.aborted) continue;
    for (const std::uint32_t i : part.retention.order) {
      const Action action = part.retention.decisions[i].action;
      if (action != Action::trash && action != Action::demote) continue;
      report.stopped = report.stopped || session.is_stopped();
      if (report.stopped) break;
      PruneStep step{.part = p, .index = i};
      const auto deletion = deletion_of(io, plan, part, i, how, links);
      const auto outcome = room.with_room([&] {
        return action == Action::trash ? trash->put(deletion) : demote(session, *trash, deletion, plan.store);
      });
      if (outcome && *outcome == LockOutcome::vanished && is_gone(io, plan.store, part.entries[i])) continue;
      report.stopped = !outcome && outcome.error().code == Errc::interrupted;
      if (report.stopped) break;
      step.done = outcome && *outcome == LockOutcome::free;
      step.in_use = outcome && *outcome == LockOutcome::read;
      if (!step.done) step.kept_because = outcome ? outcome_text(*outcome) : outcome.error().message;
      if (outcome && *outcome != LockOutcome::free && *outcome != LockOutcome::vanished && !trash->reader().empty())
        step.kept_because += ": " + trash->reader();
      if (step.done) {
        const bool whole = action == Action::trash;
        ++(whole ? report.trashed : report.demoted);
        TrashSum& waits = whole ? report.trashed_wait : report.demoted_wait;
        ++waits.count;
        waits.bytes += deletion.record.bytes;
      }
      report.complete = report.complete && step.done;
      report.steps.push_back(std::move(step));
    }
  }
  if (report.stopped) {
    report.complete = false;
    return report;
  }
  if (plan.by_name) return report;
  drop_marks(io, plan);
  auto remembered = room.with_room([&] { return remember_policies(io, plan); });
  CKPT_CHECK(purge_trash(session, plan, how, pressed, *trash, report));
  if (!remembered) remembered = remember_policies(io, plan);  // there may be room now
  if (!remembered) return fail(without_room(std::move(remembered).error()));
  for (const TrashEntry& entry : report.purged.gone) {
    if (entry.record.deleted != how.now || entry.record.by != how.by) continue;  // of an earlier prune
    TrashSum& waits = entry.record.dropped.empty() ? report.trashed_wait : report.demoted_wait;
    waits.count -= std::min<std::uint64_t>(waits.count, 1);
    waits.bytes -= std::min(waits.bytes, entry.record.bytes);
  }
  report.complete = report.complete && report.purged.kept.empty() && !report.stopped;
  return report;
}

}  // namespace ckpt
