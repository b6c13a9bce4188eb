#include <fmt/format.h>

#include "api/catalog/why.hpp"
#include "catalog/index/names.hpp"
#include "catalog/report/explain.hpp"
#include "catalog/scan/lacks_files.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {
namespace {

using catalog::TrashEntry;
using catalog::TrashRecord;

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

std::string verified_text(const catalog::Entry& entry) {
  const auto verified = entry.last(catalog::Mark::Kind::verified);
  return verified ? catalog::time_text(*verified) : std::string();
}

void put_state(json::Writer& out, const catalog::Entry& entry) {
  out.member("state", catalog::listed_state(entry));
  put_optional(out, "verified", verified_text(entry));
}

std::string state_line(const catalog::Entry& entry) {
  const std::string verified = verified_text(entry);
  return fmt::format("  state     {}{}\n", catalog::listed_state(entry),
                     verified.empty() ? "" : ", checked " + verified);
}

void print_damage(Context& context, const std::string& damage) {
  if (!damage.empty()) say_fitted(context, fmt::format("  damage    {}\n", printable(damage)), 12);
}

void print_deletion(Context& context, const TrashEntry& entry) {
  const std::string where = printable(trash_name(entry));
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

void put_deletion(json::Writer& out, const TrashEntry& entry) {
  const TrashRecord& record = entry.record;
  out.begin_object();
  put_names(out, entry.run, trash_name(entry), entry.name);
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
  for (const std::string& text : report->warnings)
    out.warnings.push_back({.severity = Severity::warning, .text = text});
  print_findings(context, out.warnings);
  if (!out.warnings.empty()) out.exit_code = exit_code(Errc::not_done);
  json::Writer data = data_writer(out.data);
  data.begin_object().key("live").begin_array();
  for (const auto& [p, i] : report->live) {
    const PrunePart& part = report->plan->parts[p];
    catalog::Entry entry = part.entries[i];
    catalog::Checkpoint& one = entry.checkpoint;
    one.superseded = part.retention.decisions[i].superseded;
    const std::string why = why_text(part, i);
    data.begin_object();
    const std::string name = catalog::ShortNames(part.entries).of(entry);
    put_names(data, one.run, name, entry.name);
    data.member("step", one.step).member("decision", catalog::action_name(part.retention.decisions[i].action));
    put_text(data, "why", why);
    put_state(data, entry);
    data.end_object();
    say(context, fmt::format("{}   {}\n  why       {}\n{}", printable(name),
                             fate_text(part.retention.decisions[i].action), printable(why), state_line(entry)));
    print_damage(context, entry.reason);
  }
  data.end_array().key("undecided").begin_array();
  for (const WhyReport::Ruleless& one : report->ruleless) {
    const std::string why =
        fmt::format("{}{}", report->plan ? "no rule of the policy matches its run" : "the store has no policy",
                    one.held.empty() ? "" : "; " + one.held);
    data.begin_object();
    put_names(data, one.entry.checkpoint.run, one.label, one.entry.name);
    data.member("step", one.entry.checkpoint.step);
    put_text(data, "path", one.entry.path(report->store));
    put_text(data, "why", why);
    put_state(data, one.entry);
    data.end_object();
    say(context,
        fmt::format("{}   kept\n  why       {}\n{}", printable(one.label), printable(why), state_line(one.entry)));
    print_damage(context, one.entry.reason);
  }
  data.end_array().key("deleted").begin_array();
  for (const TrashEntry& entry : report->history) {
    put_deletion(data, entry);
    print_deletion(context, entry);
  }
  data.end_array().end_object();
  return out;
}

}  // namespace ckpt::cli
