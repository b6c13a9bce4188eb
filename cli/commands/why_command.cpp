#include <fmt/format.h>

#include "api/catalog/store_words.hpp"
#include "api/catalog/why.hpp"
#include "cli/commands/commands.hpp"
#include "cli/output/catalog_text.hpp"
#include "cli/process/session.hpp"
#include "cli/words/catalog_words.hpp"

namespace ckpt::cli {
namespace {

using catalog::TrashEntry;
using catalog::TrashRecord;

void print_deletion(Context& context, const TrashEntry& entry) {
  const std::string where = printable(entry.run + "/" + entry.name);
  if (!entry.recorded) {
    say(context, fmt::format("{}   in the trash; the record of its deletion cannot be read\n", where));
    return;
  }
  const TrashRecord& record = entry.record;
  say(context, fmt::format("{}   {} {} by {}, {}\n  why       {}\n", where,
                           record.dropped.empty() ? "deleted" : "optimizer dropped", catalog::time_text(record.deleted),
                           printable(record.by), policy_text(record.policy), printable(record.why)));
  switch (record.state) {
    case TrashRecord::State::trashed:
      say(context, fmt::format("  now       in the trash until {}; ckpt undelete brings it back\n",
                               catalog::time_text(record.purge_at)));
      break;
    case TrashRecord::State::restoring:
      say(context, "  now       being restored; ckpt undelete goes on\n");
      break;
    case TrashRecord::State::purging:
    case TrashRecord::State::purged:
      say(context,
          fmt::format("  now       removed for good {} by {}{}\n", catalog::time_text(record.changed),
                      printable(record.changed_by), record.recycled ? "; its files were given to the next save" : ""));
      break;
    case TrashRecord::State::restored:
      say(context, fmt::format("  now       restored {} by {}\n", catalog::time_text(record.changed),
                               printable(record.changed_by)));
      break;
  }
}

Json deletion_json(const TrashEntry& entry) {
  const TrashRecord& record = entry.record;
  Json out;
  put_text(out, "run", entry.run);
  put_text(out, "name", entry.name);
  out["recorded"] = entry.recorded;
  out["state"] = entry.recorded ? Json(catalog::state_name(record.state)) : Json();
  out["step"] = record.step;
  out["bytes"] = record.bytes;
  out["dropped"] = record.dropped;
  out["recycled"] = record.recycled;
  out["deleted"] = catalog::time_text(record.deleted);
  out["by"] = record.by;
  out["why"] = record.why;
  out["policy"] = record.policy;
  out["purge_at"] = catalog::time_text(record.purge_at);
  out["changed"] = catalog::time_text(record.changed);
  out["changed_by"] = record.changed_by;
  return out;
}

}  // namespace

Answer run_why(Context& context) {
  const Words& words = context.words;
  PruneRequest request{.store = store_of(words), .now = now()};
  request.policy.file = words.text("policy");
  auto report = ask_alone(
      context, [&](Session& session) { return explain_checkpoint(session, request, words.arguments.front()); });
  if (!report) return failed(std::move(report).error());

  Answer out;
  out.data = {{"live", Json::array()}, {"undecided", Json::array()}, {"deleted", Json::array()}};
  for (const auto& [p, i] : report->live) {
    const PrunePart& part = report->plan->parts[p];
    const catalog::Checkpoint& one = part.checkpoints[i];
    const std::string why = why_text(part, i);
    Json told;
    put_text(told, "run", one.run);
    put_text(told, "name", part.entries[i].name);
    told["step"] = one.step;
    told["decision"] = catalog::action_name(part.retention.decisions[i].action);
    put_text(told, "why", why);
    const auto verified = part.entries[i].last(catalog::Mark::Kind::verified);
    told["state"] = state_word(one.state);
    told["verified"] = verified ? Json(catalog::time_text(*verified)) : Json();
    out.data["live"].push_back(std::move(told));
    say(context,
        fmt::format("{}   {}\n  why       {}\n  state     {}{}\n", printable(one.run + "/" + part.entries[i].name),
                    catalog::action_name(part.retention.decisions[i].action), printable(why), state_word(one.state),
                    verified ? ", looked at " + catalog::time_text(*verified) : ""));
  }
  for (const std::string& path : report->ruleless) {
    Json told;
    put_text(told, "path", path);
    out.data["undecided"].push_back(std::move(told));
    say(context, fmt::format("{}   KEEP\n  why       no policy decides about it\n", printable(path)));
  }
  for (const TrashEntry& entry : report->history) {
    out.data["deleted"].push_back(deletion_json(entry));
    print_deletion(context, entry);
  }
  return out;
}

}  // namespace ckpt::cli
