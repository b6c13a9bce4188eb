#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/remove.hpp"
#include "api/catalog/undelete.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/commands/trash_list.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/glob.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

using catalog::TrashEntry;
using catalog::TrashRecord;

/// Of directories of the trash that could not be listed.
std::vector<Finding> findings_of(const std::vector<catalog::Unread>& unread) {
  std::vector<Finding> out;
  for (const catalog::Unread& one : unread) out.push_back({.severity = Severity::warning, .text = one.error.message});
  return out;
}

/// Of a few by name, with the generation: the trash may hold other saves of the step.
std::string restore_command(const std::vector<std::string>& names, const std::string& store) {
  constexpr std::size_t kMostNamed = 8;
  if (names.size() > kMostNamed) return "ckpt undelete --since 5m" + store;
  std::string out = "ckpt undelete";
  for (const std::string& name : names) out += " " + shell_word(name);
  return out + store;
}

void print_removals(Context& context, const RemoveReport& report, const RemoveRequest& request) {
  const SizeStyle sizes = context.settings.sizes;
  const bool dry_run = request.dry_run;
  std::vector<std::string> gone;
  catalog::Time first_end = catalog::Time::max();
  for (const NamedRemoval& one : report.removals) {
    if (!one.refused.empty()) continue;
    gone.push_back(trash_name(one.run, one.name, one.step, true));
    first_end = std::min(first_end, one.kept_until);
    const std::string where = is_store_found(context.words, request.store) ? " in " + printable(request.store) : "";
    say(context, fmt::format("{} {}, {}{}\n", dry_run ? "would delete" : "deleted", printable(one.label),
                             format_size(one.bytes, sizes), where));
  }
  if (gone.empty()) return;
  if (dry_run) {
    say(context, "dry run: nothing was deleted\n");
    return;
  }
  const std::string store =
      request.store == store_of(context.words) ? store_option(context.words) : " --store " + shell_path(request.store);
  say(context,
      fmt::format("in the trash until {}; to restore: {}\n", minute_text(first_end), restore_command(gone, store)));
}

std::string removal_data(const RemoveReport& report, const std::string& store, bool dry_run) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "store", store);
  out.member("dry_run", dry_run);
  for (const bool refused : {false, true}) {
    out.key(refused ? "refused" : "deleted").begin_array();
    for (const NamedRemoval& one : report.removals) {
      if (one.refused.empty() == refused) continue;
      out.begin_object();
      put_names(out, one.run, one.label, one.name);
      out.member("step", one.step).member("bytes", one.bytes);
      if (refused) {
        put_text(out, "because", one.refused);
      } else {
        out.member("in_trash_until", catalog::time_text(one.kept_until));
      }
      out.end_object();
    }
    out.end_array();
  }
  out.end_object();
  return data;
}

void put_entry(json::Writer& out, const TrashEntry& entry) {
  const TrashRecord& record = entry.record;
  out.begin_object();
  put_names(out, entry.run, trash_name(entry), entry.name);
  out.member("step", record.step).member("recorded", entry.recorded).member("dropped", record.dropped);
  out.member("bytes", record.bytes);
  put_optional(out, "deleted", entry.recorded ? catalog::time_text(record.deleted) : "");
  put_text(out, "by", record.by);
  put_text(out, "why", record.why);
  put_text(out, "policy", record.policy);
  put_optional(out, "in_trash_until", entry.recorded ? catalog::time_text(record.purge_at) : "");
  out.end_object();
}

/// --all, --since, names and --pin.
Result<UndeleteRequest> read_undelete(const Words& words) {
  CKPT_TRY(std::vector<std::string> names, runs_of(words));
  UndeleteRequest out{.store = store_of(words), .names = std::move(names), .now = now(), .by = who()};
  CKPT_TRY(out.lock_timeout, lock_timeout_of(words));
  out.all = words.on("all");
  if (const Value* value = words.value("since")) {
    CKPT_TRY(out.since, time_of(*value, out.now, false));
  }
  if (words.on("pin"))
    out.pin = catalog::Mark{.kind = catalog::Mark::Kind::pin, .text = "undeleted", .owner = user_name(), .at = out.now};
  if (out.names.empty() && !out.all && !out.since)
    return fail(
        {.code = Errc::usage,
         .message = "missing argument NAME",
         .hint = "name a checkpoint or a run, or use --all or --since 1h; 'ckpt list --trash' lists the trash"});
  if (out.all && !out.names.empty()) return fail(Errc::usage, "--all and NAME cannot be used together");
  return out;
}

void print_restored(Context& context, const UndeleteRequest& request, const UndeleteReport& report) {
  const auto printed = [&](const TrashEntry& entry) { return printable(trash_name(entry)); };
  for (const TrashEntry& entry : report.restored)
    say(context,
        fmt::format("restored {}{}\n", entry.record.dropped.empty() ? "" : "the optimizer of ", printed(entry)));
  for (const TrashEntry& entry : report.in_place) say(context, fmt::format("{} is not deleted\n", printed(entry)));
  if (report.restored.empty()) {
    const bool nothing = report.in_place.empty() && report.refused.empty();
    if (nothing && report.unread.empty())
      say(context, request.since ? "nothing was deleted since then\n" : "the trash is empty\n");
    return;
  }
  const std::string_view them = report.restored.size() == 1 ? "it" : "them";
  if (request.pin && report.unpinned.empty()) {
    say(context, fmt::format("pinned: no policy deletes {} until 'ckpt unpin'\n", them));
    return;
  }
  catalog::Time first = catalog::Time::max();
  for (const TrashEntry& entry : report.restored)
    first = std::min(first, entry.recorded ? catalog::undeleted_until(entry.record) : request.now);
  if (first > request.now)
    say(context, fmt::format("prune keeps {0} until {1}; 'ckpt pin' keeps {0} longer\n", them, minute_text(first)));
  else
    say(context, fmt::format("the next prune may delete {0} again; 'ckpt pin' keeps {0}\n", them));
}

}  // namespace

Answer run_rm(Context& context) {
  const Words& words = context.words;
  RemoveRequest request{.store = store_of(words), .dry_run = words.on("dry-run"), .now = now(), .by = who()};
  auto timeout = lock_timeout_of(words);
  if (!timeout) return failed(std::move(timeout).error());
  request.lock_timeout = *timeout;
  auto report = ask_by_name(context, [&](Session& session, NamesInStore named) -> Result<RemoveReport> {
    request.store = std::move(named.store);
    request.names = std::move(named.names);
    return remove_checkpoints(session, request);
  });
  if (!report) return failed(std::move(report).error(), "nothing was deleted");
  Answer out;
  std::vector<Finding> findings;
  for (const std::string& text : report->warnings) findings.push_back({.severity = Severity::warning, .text = text});
  bool all = true;
  for (const NamedRemoval& one : report->removals) {
    if (one.refused.empty()) continue;
    all = false;
    findings.push_back(
        {.severity = Severity::warning, .text = fmt::format("{}: not deleted: {}", one.label, one.refused)});
  }
  print_removals(context, *report, request);
  print_findings(context, findings);
  take_warnings(out, findings);
  if (context.settings.json) out.data = removal_data(*report, request.store, request.dry_run);
  if (report->stopped)
    return failed(name_signal({.code = Errc::interrupted,
                               .message = request.store + ": stopped",
                               .hint = "run the same command again to continue"}));
  if (!all) out.exit_code = exit_code(Errc::not_done);
  return out;
}

Answer list_trash(Context& context) {
  const Words& words = context.words;
  StorePlace place;
  for (const char* flag : {"tag", "state", "where", "sort", "csv", "rebuild"}) {
    if (words.value(flag) != nullptr)
      return failed({.code = Errc::usage, .message = fmt::format("--{} does not work with --trash", flag)});
  }
  std::optional<catalog::Time> since;
  if (const Value* value = words.value("since")) {
    auto time = time_of(*value, now(), false);
    if (!time) return failed(std::move(time).error());
    since = *time;
  }
  std::uint64_t limit = UINT64_MAX;
  if (const Value* value = words.value("limit")) {
    const auto count = parse_count(value->text, 1, UINT64_MAX);
    if (!count)
      return failed({.code = Errc::usage, .message = fmt::format("{}: {}", value->origin, count.error().message)});
    limit = *count;
  }
  auto listing = ask_alone(context, [&](Session& session) -> Result<TrashListing> {
    CKPT_TRY(place, listed_place(session, words));
    place.store = join_path(place.store, "");
    return list_deleted(session.io, place.store);
  });
  if (!listing) return failed(std::move(listing).error());
  std::vector<TrashEntry>& entries = listing->entries;
  std::erase_if(entries, [&](const TrashEntry& entry) {
    return (!place.run.empty() && !matches_glob(entry.run, place.run)) ||
           (since && (!entry.recorded || entry.record.deleted < *since));
  });
  std::ranges::stable_sort(entries, [](const TrashEntry& a, const TrashEntry& b) {
    if (a.run != b.run) return a.run < b.run;
    return a.record.step > b.record.step;
  });
  const std::size_t total = entries.size();
  if (total > limit) entries.resize(static_cast<std::size_t>(limit));

  Answer out;
  const std::vector<Finding> findings = findings_of(listing->unread);
  print_findings(context, findings);
  take_warnings(out, findings);
  if (!findings.empty()) out.exit_code = exit_code(Errc::not_done);
  if (context.settings.json) {
    json::Writer data = data_writer(out.data);
    data.begin_object();
    put_text(data, "store", place.store);
    data.member("total", total).key("trash").begin_array();
    for (const TrashEntry& entry : entries) put_entry(data, entry);
    data.end_array().end_object();
    return out;
  }
  const bool people = !context.words.on("tsv");
  const catalog::Time time = now();
  Table table{.columns = {{.title = "NAME"},
                          {.title = people ? "SIZE" : "BYTES", .right = true},
                          {.title = "DELETED", .right = people},
                          {.title = "KEPT UNTIL"},
                          {.title = "BY", .shrinks = true},
                          {.title = "WHY", .shrinks = true, .keeps_head = true}}};
  std::uint64_t bytes = 0;
  for (const TrashEntry& entry : entries) {
    const TrashRecord& record = entry.record;
    std::string name = printable(trash_name(entry));
    if (context.settings.quiet) {
      say(context, name + "\n", true);
      continue;
    }
    bytes += std::min(record.bytes, UINT64_MAX - bytes);
    if (!record.dropped.empty()) name += " (optimizer)";
    if (!entry.recorded) {
      table.rows.push_back({std::move(name), "", "", "for ever", "", "its deletion record is unreadable"});
      continue;
    }
    const bool over = record.purge_at <= time;
    table.rows.push_back(
        {std::move(name), people ? format_size(record.bytes, context.settings.sizes) : std::to_string(record.bytes),
         people ? age_text(record.deleted, time) + " ago" : catalog::time_text(record.deleted),
         !people ? catalog::time_text(record.purge_at)
         : over  ? "the next prune"
                 : minute_text(record.purge_at),
         printable(record.by.substr(0, people ? record.by.find(" pid ") : std::string::npos)), printable(record.why)});
  }
  if (context.settings.quiet) return out;
  if (!people) {
    say(context, draw_tsv(table));
    return out;
  }
  if (total == 0) {
    say(context, findings.empty() ? "the trash is empty\n" : "nothing that can be read\n");
    return out;
  }
  const std::string option =
      place.store == store_of(words) ? store_option(words) : " --store " + shell_path(place.store);
  std::string text = draw_aligned(table, context.console.table_width()).text;
  text += fmt::format("{} in the trash, {}", format_count(entries.size()), format_size(bytes, context.settings.sizes));
  if (total != entries.size()) text += fmt::format("; {} in total", format_count(total));
  say(context, text + fmt::format("\nto restore: ckpt undelete NAME, RUN or --all{}\n", option));
  return out;
}

Answer run_undelete(Context& context) {
  auto request = read_undelete(context.words);
  if (!request) return failed(std::move(request).error());
  auto report = ask_alone(context, [&](Session& session) { return undelete(session.io, *request); });
  if (!report) return failed(std::move(report).error());

  Answer out;
  json::Writer data = data_writer(out.data);
  data.begin_object().key("restored").begin_array();
  for (const TrashEntry& entry : report->restored) {
    data.begin_object();
    put_names(data, entry.run, trash_name(entry), entry.name);
    data.member("step", entry.record.step).member("dropped", entry.record.dropped);
    put_optional(data, "kept_until",
                 entry.recorded ? catalog::time_text(catalog::undeleted_until(entry.record)) : std::string());
    data.end_object();
  }
  data.end_array().key("in_place").begin_array();
  for (const TrashEntry& entry : report->in_place) {
    data.begin_object();
    put_names(data, entry.run, trash_name(entry), entry.name);
    data.member("step", entry.record.step).end_object();
  }
  std::vector<Finding> findings = findings_of(report->unread);
  data.end_array().key("refused").begin_array();
  for (const auto& [name, reason] : report->refused) {
    data.begin_object();
    put_text(data, "name", name);
    put_text(data, "because", reason);
    data.end_object();
    findings.push_back({.severity = Severity::warning, .text = fmt::format("{}: not restored: {}", name, reason)});
  }
  data.end_array().end_object();
  for (const auto& [name, reason] : report->unpinned)
    findings.push_back({.severity = Severity::warning, .text = fmt::format("{}: not pinned: {}", name, reason)});
  print_restored(context, *request, *report);
  print_findings(context, findings);
  take_warnings(out, findings);
  if (!findings.empty()) out.exit_code = exit_code(Errc::not_done);
  return out;
}

}  // namespace ckpt::cli
