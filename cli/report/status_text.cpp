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
  out.begin_object().member("step", summary.newest_demoted->step).member("directory", summary.newest_demoted->name);
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

void put_last_run(json::Writer& out, std::string_view key, const std::optional<LastRun>& run) {
  out.key(key);
  if (!run) {
    out.value(nullptr);
    return;
  }
  out.begin_object().member("at", catalog::time_text(run->at));
  put_text(out, "by", run->by);
  out.member("exit_code", run->exit_code).member("checkpoints", run->count).member("damaged", run->problems);
  out.member("bytes", run->bytes).end_object();
}

void put_summary(json::Writer& out, const RunSummary& summary, const TrashEntry* demotion,
                 const StoreStatus::Best* best, const std::string& newest) {
  out.begin_object();
  put_text(out, "run", summary.run);
  out.member("checkpoints", summary.count).member("bytes", summary.bytes);
  const auto put_name = [&](std::string_view key, const std::string& text) {
    if (text.empty()) return put_optional(out, key, "");
    put_text(out, key, text);
  };
  put_name("newest", newest);
  out.member("newest_step", summary.newest ? std::optional(summary.newest->step) : std::nullopt);
  put_name("newest_directory", summary.newest ? summary.newest->name : "");
  put_optional(out, "newest_created", summary.newest ? catalog::time_text(summary.newest->created) : "");
  out.member("verified", summary.verified);
  out.member("verified_step", summary.verified_step).member("restored_step", summary.restored_step);
  out.member("damaged", summary.damaged).member("unreadable", summary.unreadable).member("pinned", summary.pinned);
  put_optional(out, "last_verified", summary.last_verified ? catalog::time_text(*summary.last_verified) : "");
  out.key("best");
  if (best != nullptr) {
    out.begin_object();
    put_text(out, "metric", best->metric);
    out.member("value", best->value).member("step", best->step);
    put_text(out, "name", best->name);
    out.end_object();
  } else {
    out.value(nullptr);
  }
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

/// "2 damaged, 1 unreadable"; "" if all is well.
std::string problems_text(const RunSummary& run) {
  std::string out;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count != 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  };
  add(run.damaged, "damaged");
  add(run.unreadable, "unreadable");
  return out;
}

/// "200.g4" of "llama@200.g4".
std::string in_run(const std::string& name, const std::string& run) {
  return name.substr(run.size() + 1);
}

Table run_table(const StoreStatus& status, SizeStyle sizes, catalog::Time now) {
  Table out{.columns = {{.title = "RUN", .shrinks = true, .least = 8},
                        {.title = "COUNT", .right = true},
                        {.title = "SIZE", .right = true},
                        {.title = "NEWEST", .right = true},
                        {.title = "AGE", .right = true},
                        {.title = "BEST", .shrinks = true, .least = 12, .keeps_head = true},
                        {.title = "VERIFIED"},
                        {.title = "RESUMED", .right = true, .drops = true},
                        {.title = "PINNED", .right = true, .drops = true},
                        {.title = "PROBLEMS", .shrinks = true, .least = 10, .keeps_head = true}}};
  for (const RunSummary& run : status.runs) {
    const auto* best = status.best_of(run.run);
    std::string verified;
    if (run.verified_step && (!run.newest || *run.verified_step != run.newest->step))
      verified = fmt::format("{}", *run.verified_step);
    if (run.last_verified)
      verified += fmt::format("{}{}", verified.empty() ? "" : ", ", age_text(*run.last_verified, now));
    out.rows.push_back({printable(run.run), std::to_string(run.count), format_size(run.bytes, sizes),
                        run.newest ? printable(in_run(status.newest.at(run.run), run.run)) : "none",
                        run.newest ? age_text(run.newest->created, now) : "",
                        best != nullptr ? printable(fmt::format("{} ({} {:.5g})", in_run(best->name, run.run),
                                                                best->metric, best->value))
                                        : "",
                        verified, run.restored_step ? std::to_string(*run.restored_step) : "",
                        run.pinned != 0 ? std::to_string(run.pinned) : "", problems_text(run)});
  }
  return out;
}

/// "last prune  30 min ago, 13 deleted".
std::string last_run_text(const LastRun& run, SizeStyle sizes, catalog::Time now) {
  constexpr int kNotDone = exit_code(Errc::not_done);
  const bool is_prune = run.kind == LastRun::Kind::prune;
  std::string out = fmt::format("last {} {} ago by {}: ", is_prune ? "prune" : "verify", age_text(run.at, now),
                                printable(run.by.substr(0, run.by.find(" pid "))));
  if (run.exit_code == exit_code(Errc::guarded)) {
    out += "stopped by a guard; 'ckpt prune' shows why";
  } else if (run.exit_code != 0 && run.exit_code != kNotDone && run.exit_code != exit_code(Errc::differs)) {
    out += fmt::format("failed with exit code {}", run.exit_code);
  } else if (is_prune) {
    out += run.count == 0 ? "nothing to delete" : fmt::format("{} deleted or reduced to weights", run.count);
    if (run.bytes != 0) out += ", " + format_size(run.bytes, sizes);
  } else {
    out += fmt::format("{} checked, {} damaged", run.count, run.problems);
  }
  if (run.exit_code == kNotDone)
    out += is_prune ? "; some were in use, or could not be read" : "; not all could be read";
  return out + "\n";
}

/// The command that a person should run next; "" if there is nothing to do.
std::string next_action(const StoreStatus& status, const std::string& option) {
  std::uint64_t damaged = 0;
  std::uint64_t verified = 0;
  std::uint64_t count = 0;
  for (const RunSummary& run : status.runs) {
    damaged += run.damaged;
    verified += run.verified;
    count += run.count;
  }
  const bool is_guarded = status.last_prune && status.last_prune->exit_code == exit_code(Errc::guarded);
  if (damaged != 0) return fmt::format("next: ckpt list --state damaged{}\n", option);
  if (is_guarded) return fmt::format("next: ckpt prune{}\n", option);
  if (status.trash.over != 0 && status.has_policy) return fmt::format("next: ckpt prune --apply{}\n", option);
  if (count != 0 && verified == 0) return fmt::format("next: ckpt verify --all{}\n", option);
  return {};
}

/// Of the checkpoints that are weights only by a rule; nothing if there are none.
std::string demotion_text(const RunSummary& run, const TrashEntry* demotion, catalog::Time now) {
  if (!run.newest_demoted) return {};
  std::string out = fmt::format("{}: optimizer dropped from {}, last at step {}", printable(run.run), run.demoted,
                                run.newest_demoted->step);
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
  if (status.trash_unread.empty())
    put_trash(out.key("trash"), status.trash);
  else
    out.member("trash", nullptr);
  put_readers(out.key("readers"), status.readers);
  put_last_run(out, "last_prune", status.last_prune);
  put_last_run(out, "last_verify", status.last_verify);
  out.member("indexed", status.indexed).key("runs").begin_array();
  for (const RunSummary& run : status.runs)
    put_summary(out, run, status.demotion_of(run.run), status.best_of(run.run), status.newest.at(run.run));
  out.end_array().end_object();
}

void print_status(Context& context, const StoreStatus& status, catalog::Time now) {
  const SizeStyle sizes = context.settings.sizes;
  std::string out = status.saw_all ? "no checkpoints\n" : "no readable checkpoints\n";
  if (!status.runs.empty()) {
    const auto paint = [&](std::size_t column, const std::string& cell, std::string_view text) {
      constexpr std::size_t kProblems = 9;
      return column == kProblems && !cell.empty() ? context.console.paint_out(Ink::red, text) : std::string(text);
    };
    const std::size_t width = context.console.out_is_terminal() ? context.console.width() : SIZE_MAX;
    out = draw_aligned(run_table(status, sizes, now), width, paint).text;
  }
  for (const RunSummary& run : status.runs) out += demotion_text(run, status.demotion_of(run.run), now);
  if (status.last_prune) out += last_run_text(*status.last_prune, sizes, now);
  if (status.last_verify) out += last_run_text(*status.last_verify, sizes, now);
  out += status.trash_unread.empty() ? trash_text(status.trash, now, sizes) : "trash: cannot be read\n";
  out += readers_text(status.readers);
  out += fmt::format("free {}", format_size(status.free_bytes, sizes));
  if (status.recycled.files != 0)
    out += fmt::format(", and {} of recycled files for the next save", format_size(status.recycled.bytes, sizes));
  say(context, out + "\n" + next_action(status, store_option(context.words)));
}

}  // namespace ckpt::cli
