#include <fmt/format.h>

#include <set>

#include "api/catalog/why.hpp"
#include "catalog/index/names.hpp"
#include "catalog/report/explain.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {
namespace {

using catalog::TrashEntry;
using catalog::TrashRecord;

/// Whether a report is about several saves of a step: then their directories name them.
bool is_about_several(const WhyReport& report) {
  std::set<std::string> names;
  for (const auto& [p, i] : report.live) names.insert(report.plan->parts[p].entries[i].name);
  for (const TrashEntry& entry : report.history) names.insert(entry.name);
  return names.size() > 1;
}

/// What the next prune does with it.
std::string_view fate_text(catalog::Action action) {
  switch (action) {
    case catalog::Action::trash:
      return "the next prune deletes it";
    case catalog::Action::demote:
      return "the next prune drops its optimizer";
    default:
      return "kept";
  }
}

void print_damage(Context& context, const std::string& damage) {
  if (!damage.empty()) say_fitted(context, fmt::format("  damage    {}\n", printable(damage)), 12);
}

std::string deletion_name(const TrashEntry& entry, bool several) {
  return trash_name(entry.run, entry.name, entry.record.step, several || !entry.recorded);
}

void print_deletion(Context& context, const TrashEntry& entry, bool several) {
  const std::string where = printable(deletion_name(entry, several));
  if (!entry.recorded) {
    say(context, fmt::format("{}   in the trash; its deletion record is unreadable\n", where));
    return;
  }
  const TrashRecord& record = entry.record;
  say(context, fmt::format("{}   {} {} by {}, {}\n  why       {}\n", where,
                           record.dropped.empty() ? "deleted" : "optimizer dropped", catalog::time_text(record.deleted),
                           printable(record.by), policy_text(record.policy), printable(record.why)));
  switch (record.state) {
    case TrashRecord::State::trashed:
      say(context, fmt::format("  now       in the trash until {}; 'ckpt undelete' restores it\n",
                               catalog::time_text(record.purge_at)));
      break;
    case TrashRecord::State::restoring:
      say(context, "  now       being restored; 'ckpt undelete' continues\n");
      break;
    case TrashRecord::State::purging:
    case TrashRecord::State::purged:
      say(context, fmt::format("  now       deleted permanently {} by {}{}\n", catalog::time_text(record.changed),
                               printable(record.changed_by), record.recycled ? "; its files were recycled" : ""));
      break;
    case TrashRecord::State::restored:
      say(context, fmt::format("  now       restored {} by {}\n", catalog::time_text(record.changed),
                               printable(record.changed_by)));
      break;
  }
}

void put_deletion(json::Writer& out, const TrashEntry& entry, bool several) {
  const TrashRecord& record = entry.record;
  out.begin_object();
  put_names(out, entry.run, deletion_name(entry, several), entry.name);
  out.member("recorded", entry.recorded);
  put_optional(out, "state", entry.recorded ? catalog::state_name(record.state) : "");
  out.member("step", record.step).member("bytes", record.bytes).member("dropped", record.dropped);
  out.member("recycled", record.recycled).member("deleted", catalog::time_text(record.deleted));
  out.member("by", record.by).member("why", record.why).member("policy", record.policy);
  out.member("purge_at", catalog::time_text(record.purge_at)).member("changed", catalog::time_text(record.changed));
  out.member("changed_by", record.changed_by).end_object();
}

}  // namespace

Answer run_why(Context& context) {
  const Words& words = context.words;
  PruneRequest request{.now = now()};
  request.policy.file = words.text("policy");
  auto report = ask_by_name(context, [&](Session& session, NamesInStore named) -> Result<WhyReport> {
    request.store = std::move(named.store);
    return explain_checkpoint(session, request, named.names.front());
  });
  if (!report) return failed(std::move(report).error());

  Answer out;
  const bool several = is_about_several(*report);
  json::Writer data = data_writer(out.data);
  data.begin_object().key("live").begin_array();
  for (const auto& [p, i] : report->live) {
    const PrunePart& part = report->plan->parts[p];
    catalog::Checkpoint one = part.checkpoints[i];
    one.superseded = part.retention.decisions[i].superseded;
    const std::string why = why_text(part, i);
    const auto verified = part.entries[i].last(catalog::Mark::Kind::verified);
    data.begin_object();
    const std::string name = catalog::ShortNames(part.entries).of(part.entries[i]);
    put_names(data, one.run, name, part.entries[i].name);
    data.member("step", one.step).member("decision", catalog::action_name(part.retention.decisions[i].action));
    put_text(data, "why", why);
    data.member("state", state_word(one));
    put_optional(data, "verified", verified ? catalog::time_text(*verified) : "");
    data.end_object();
    say(context, fmt::format("{}   {}\n  why       {}\n  state     {}{}\n", printable(name),
                             fate_text(part.retention.decisions[i].action), printable(why), state_word(one),
                             verified ? ", checked " + catalog::time_text(*verified) : ""));
    print_damage(context, part.entries[i].reason);
  }
  data.end_array().key("undecided").begin_array();
  for (const WhyReport::Ruleless& one : report->ruleless) {
    data.begin_object();
    put_text(data, "path", one.path);
    data.end_object();
    say(context, fmt::format("{}   kept\n  why       {}{}\n", printable(one.label),
                             report->plan ? "no rule of the policy matches its run" : "the store has no policy",
                             one.held.empty() ? "" : "; " + printable(one.held)));
    print_damage(context, one.damage);
  }
  data.end_array().key("deleted").begin_array();
  for (const TrashEntry& entry : report->history) {
    put_deletion(data, entry, several);
    print_deletion(context, entry, several);
  }
  data.end_array().end_object();
  return out;
}

}  // namespace ckpt::cli
