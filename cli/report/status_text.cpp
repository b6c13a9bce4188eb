#include <fmt/format.h>

#include "catalog/scan/utc.hpp"
#include "cli/report/catalog_text.hpp"

namespace ckpt::cli {
namespace {

using catalog::InTrash;
using catalog::RunSummary;
using catalog::TrashEntry;
using catalog::TrashRecord;

/// The newest checkpoint without its optimizer, or null.
void put_demotion(json::Writer& out, const RunSummary& summary, const TrashEntry* demotion) {
  if (!summary.newest_demoted) {
    out.value(nullptr);
    return;
  }
  out.begin_object().member("step", summary.newest_demoted->step).member("name", summary.newest_demoted->name);
  const TrashRecord* record = demotion != nullptr ? &demotion->record : nullptr;
  const auto put = [&](std::string_view key, bool known, const auto& text) {
    out.member(key, known ? std::optional(text(*record)) : std::nullopt);
  };
  const bool known = record != nullptr;
  put("dropped", known, [](const TrashRecord& one) { return catalog::time_text(one.deleted); });
  put("by", known, [](const TrashRecord& one) { return one.by; });
  put("why", known, [](const TrashRecord& one) { return one.why; });
  put("policy", known, [](const TrashRecord& one) { return one.policy; });
  put("in_trash_until", known && demotion->present,
      [](const TrashRecord& one) { return catalog::time_text(one.purge_at); });
  out.end_object();
}

void put_summary(json::Writer& out, const RunSummary& summary, const TrashEntry* demotion) {
  out.begin_object();
  put_text(out, "run", summary.run);
  out.member("checkpoints", summary.count).member("bytes", summary.bytes).member("newest_step", summary.newest_step);
  put_text(out, "newest_name", summary.newest_name);
  out.member("newest_created", catalog::time_text(summary.newest_created)).member("verified", summary.verified);
  out.member("verified_step", summary.verified_step).member("restored_step", summary.restored_step);
  out.member("corrupt", summary.damaged).member("unreadable", summary.unreadable).member("pinned", summary.pinned);
  out.member("optimizer_dropped", summary.demoted);
  put_demotion(out.key("newest_dropped"), summary, demotion);
  out.end_object();
}

void put_trash(json::Writer& out, const InTrash& trash) {
  const auto put_time = [&](std::string_view key, const std::optional<catalog::Time>& time) {
    put_optional(out, key, time ? catalog::time_text(*time) : "");
  };
  out.begin_object().member("checkpoints", trash.checkpoints).member("optimizers", trash.optimizers);
  out.member("bytes", trash.bytes).member("over", trash.over);
  put_time("first_over", trash.first_over);
  put_time("last_over", trash.last_over);
  out.member("unrecorded", trash.unrecorded).end_object();
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

/// Of the checkpoints that are weights only by a rule; nothing if there are none.
std::string demotion_text(const RunSummary& run, const TrashEntry* demotion, catalog::Time now) {
  if (!run.newest_demoted) return {};
  std::string out = fmt::format("  optimizer dropped from {}, last at step {}", run.demoted, run.newest_demoted->step);
  if (demotion != nullptr)
    out += fmt::format(": {} ago, {}: {}", age_text(demotion->record.deleted, now),
                       policy_text(demotion->record.policy), printable(demotion->record.why));
  return out + "\n";
}

std::string grace_text(const InTrash& trash, catalog::Time now) {
  if (!trash.first_over) return {};
  std::string out;
  if (trash.over != 0)
    out += fmt::format(" · {} expired: the next ckpt prune --apply removes {}", trash.over,
                       trash.over == 1 ? "it" : "them");
  if (*trash.last_over <= now) return out;
  const std::string first = age_text(now, *trash.first_over);
  const std::string last = age_text(now, *trash.last_over);
  if (trash.over != 0) return out + fmt::format(", the last expires in {}", last);
  return fmt::format(" · expires in {}", first == last ? first : first + " to " + last);
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
    out += fmt::format("{} {} without a record: never removed automatically", what.empty() ? "" : " ·",
                       trash.unrecorded, trash.unrecorded == 1 ? "it" : "them");
  return out + "\n";
}

void put_readers(json::Writer& out, const StoreReaders& readers) {
  out.begin_object().member("here", readers.here).member("elsewhere", readers.elsewhere);
  out.member("silent", readers.silent).member("hosts", readers.hosts);
  put_optional(out, "deleter", readers.deleter);
  out.end_object();
}

/// By claims; nothing if there are none.
std::string readers_text(const StoreReaders& readers) {
  std::string out;
  if (readers.here != 0) out += fmt::format(" {} on this host", readers.here);
  if (readers.elsewhere != 0)
    out += fmt::format("{} {} on {} ({})", out.empty() ? "" : " ·", readers.elsewhere,
                       readers.hosts.size() == 1 ? "another host" : "other hosts", fmt::join(readers.hosts, ", "));
  if (readers.silent != 0) out += fmt::format(" · {} silent", readers.silent);
  if (!out.empty()) out = "readers" + out + "\n";
  if (!readers.deleter.empty()) out += fmt::format("deleting now: {}\n", readers.deleter);
  return out;
}

}  // namespace

void put(json::Writer& out, const StoreStatus& status, const std::string& store) {
  out.begin_object();
  put_text(out, "store", store);
  out.member("free_bytes", status.free_bytes).key("recycled").begin_object().member("sets", status.recycled.sets);
  out.member("files", status.recycled.files).member("bytes", status.recycled.bytes).end_object();
  put_trash(out.key("trash"), status.trash);
  put_readers(out.key("readers"), status.readers);
  out.member("indexed", status.indexed).key("runs").begin_array();
  for (const RunSummary& run : status.runs) put_summary(out, run, status.demotion_of(run.run));
  out.end_array().end_object();
}

std::string status_text(const StoreStatus& status, SizeStyle sizes, catalog::Time now) {
  std::string out;
  for (const RunSummary& run : status.runs)
    out += summary_text(run, now, sizes) + demotion_text(run, status.demotion_of(run.run), now);
  if (status.runs.empty()) out = "no checkpoints\n";
  out += trash_text(status.trash, now, sizes);
  out += readers_text(status.readers);
  out += fmt::format("free {}", format_size(status.free_bytes, sizes));
  if (status.recycled.files != 0)
    out += fmt::format(", and {} of recycled files for the next save", format_size(status.recycled.bytes, sizes));
  return out + "\n";
}

}  // namespace ckpt::cli
