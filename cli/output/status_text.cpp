#include <fmt/format.h>

#include "cli/output/catalog_text.hpp"

namespace ckpt::cli {
namespace {

using catalog::InTrash;
using catalog::RunSummary;
using catalog::TrashEntry;
using catalog::TrashRecord;

Json status_time_json(const std::optional<catalog::Time>& time) {
  return time ? Json(catalog::time_text(*time)) : Json();
}

Json summary_json(const RunSummary& summary, const TrashEntry* demotion) {
  Json out;
  put_text(out, "run", summary.run);
  out["checkpoints"] = summary.count;
  out["bytes"] = summary.bytes;
  out["newest_step"] = summary.newest_step;
  put_text(out, "newest_name", summary.newest_name);
  out["newest_created"] = catalog::time_text(summary.newest_created);
  out["verified"] = summary.verified;
  out["verified_step"] = summary.verified_step ? Json(*summary.verified_step) : Json();
  out["restored_step"] = summary.restored_step ? Json(*summary.restored_step) : Json();
  out["corrupt"] = summary.damaged;
  out["unreadable"] = summary.unreadable;
  out["pinned"] = summary.pinned;
  out["optimizer_dropped"] = summary.demoted;
  Json& last = out["newest_dropped"];
  if (!summary.newest_demoted) return out;
  last["step"] = summary.newest_demoted->step;
  last["name"] = summary.newest_demoted->name;
  const TrashRecord* record = demotion != nullptr ? &demotion->record : nullptr;
  last["dropped"] = record != nullptr ? Json(catalog::time_text(record->deleted)) : Json();
  last["by"] = record != nullptr ? Json(record->by) : Json();
  last["why"] = record != nullptr ? Json(record->why) : Json();
  last["policy"] = record != nullptr ? Json(record->policy) : Json();
  last["in_trash_until"] =
      demotion != nullptr && demotion->present ? Json(catalog::time_text(record->purge_at)) : Json();
  return out;
}

Json trash_json(const InTrash& trash) {
  return {{"checkpoints", trash.checkpoints},
          {"optimizers", trash.optimizers},
          {"bytes", trash.bytes},
          {"over", trash.over},
          {"first_over", status_time_json(trash.first_over)},
          {"last_over", status_time_json(trash.last_over)},
          {"unrecorded", trash.unrecorded}};
}

std::string summary_text(const RunSummary& run, catalog::Time now, SizeStyle sizes) {
  std::string out =
      fmt::format("{}  {}, {} · newest step {}, {} ago", printable(run.run), format_counted(run.count, "checkpoint"),
                  format_size(run.bytes, sizes), run.newest_step, age_text(run.newest_created, now));
  if (run.verified_step) out += fmt::format(" · verified up to step {}", *run.verified_step);
  if (run.restored_step) out += fmt::format(" · restored up to step {}", *run.restored_step);
  if (run.damaged != 0) out += fmt::format(" · {} corrupt", run.damaged);
  if (run.unreadable != 0) out += fmt::format(" · {} unreadable", run.unreadable);
  if (run.pinned != 0) out += fmt::format(" · {} pinned", run.pinned);
  return out + "\n";
}

/// Of the checkpoints that are weights only by a rule; nothing where there are none.
std::string demotion_text(const RunSummary& run, const TrashEntry* demotion, catalog::Time now) {
  if (!run.newest_demoted) return {};
  std::string out =
      fmt::format("  optimizer dropped from {}, the newest step {}", run.demoted, run.newest_demoted->step);
  if (demotion != nullptr)
    out += fmt::format(": {} ago, {}: {}", age_text(demotion->record.deleted, now),
                       policy_text(demotion->record.policy), printable(demotion->record.why));
  return out + "\n";
}

std::string grace_text(const InTrash& trash, catalog::Time now) {
  if (!trash.first_over) return {};
  std::string out;
  if (trash.over != 0)
    out += fmt::format(" · grace over of {}: the next ckpt prune --apply removes {}", trash.over,
                       trash.over == 1 ? "it" : "them");
  if (*trash.last_over <= now) return out;
  const std::string first = age_text(now, *trash.first_over);
  const std::string last = age_text(now, *trash.last_over);
  if (trash.over != 0) return out + fmt::format(", of the last in {}", last);
  return fmt::format(" · grace ends in {}", first == last ? first : first + " to " + last);
}

std::string trash_text(const InTrash& trash, catalog::Time now, SizeStyle sizes) {
  if (trash.checkpoints + trash.optimizers + trash.unrecorded == 0) return {};
  std::string what;
  const auto add = [&](std::uint64_t count, std::string_view noun) {
    if (count != 0) what += (what.empty() ? "" : " and ") + format_counted(count, noun);
  };
  add(trash.checkpoints, "checkpoint");
  add(trash.optimizers, "optimizer");
  std::string out = "trash";
  if (!what.empty()) out += fmt::format(" {}, {}{}", what, format_size(trash.bytes, sizes), grace_text(trash, now));
  if (trash.unrecorded != 0)
    out += fmt::format("{} {} without a record: nothing removes {}", what.empty() ? "" : " ·", trash.unrecorded,
                       trash.unrecorded == 1 ? "it" : "them");
  return out + "\n";
}

Json readers_json(const StoreReaders& readers) {
  Json hosts = Json::array();
  for (const std::string& host : readers.hosts) hosts.push_back(host);
  return {{"here", readers.here},
          {"elsewhere", readers.elsewhere},
          {"silent", readers.silent},
          {"hosts", std::move(hosts)},
          {"deleter", readers.deleter.empty() ? Json() : Json(readers.deleter)}};
}

/// By claims; nothing where nobody has one.
std::string readers_text(const StoreReaders& readers) {
  std::string out;
  if (readers.here != 0) out += fmt::format(" {} on this host", readers.here);
  if (readers.elsewhere != 0)
    out += fmt::format("{} {} on {} ({})", out.empty() ? "" : " ·", readers.elsewhere,
                       readers.hosts.size() == 1 ? "another host" : "other hosts", fmt::join(readers.hosts, ", "));
  if (readers.silent != 0) out += fmt::format(" · {} not heard of lately", readers.silent);
  if (!out.empty()) out = "readers" + out + "\n";
  if (!readers.deleter.empty()) out += fmt::format("deleting now: {}\n", readers.deleter);
  return out;
}

}  // namespace

Json to_json(const StoreStatus& status, const std::string& store) {
  Json out;
  put_text(out, "store", store);
  out["free_bytes"] = status.free_bytes;
  out["recycled"] = {
      {"sets", status.recycled.sets}, {"files", status.recycled.files}, {"bytes", status.recycled.bytes}};
  out["trash"] = trash_json(status.trash);
  out["readers"] = readers_json(status.readers);
  out["indexed"] = status.indexed;
  out["runs"] = Json::array();
  for (const RunSummary& run : status.runs) out["runs"].push_back(summary_json(run, status.demotion_of(run.run)));
  return out;
}

std::string status_text(const StoreStatus& status, SizeStyle sizes, catalog::Time now) {
  std::string out;
  for (const RunSummary& run : status.runs)
    out += summary_text(run, now, sizes) + demotion_text(run, status.demotion_of(run.run), now);
  if (status.runs.empty()) out = "no checkpoint here\n";
  out += trash_text(status.trash, now, sizes);
  out += readers_text(status.readers);
  out += fmt::format("free {}", format_size(status.free_bytes, sizes));
  if (status.recycled.files != 0)
    out += fmt::format(", and {} of retired files for the next save", format_size(status.recycled.bytes, sizes));
  return out + "\n";
}

}  // namespace ckpt::cli
