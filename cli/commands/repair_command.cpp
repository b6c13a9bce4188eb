#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/repair.hpp"
#include "api/convert/salvage.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/words/store_options.hpp"

namespace ckpt::cli {
namespace {

/// What is done about it, in the tense of the report: "would be" or "was".
std::string deed_text(const RepairItem& item, bool applied) {
  if (!item.planned || (applied && !item.done)) return "kept: " + item.kept_because;
  switch (item.defect) {
    case Defect::leftover:
    case Defect::claim:
      return applied ? "removed" : "to be removed";
    case Defect::manifest:
    case Defect::manifest_copy:
      return fmt::format("all checksums OK; {}restored from {}", applied ? "" : "to be ", item.from);
    case Defect::deletion:
      return applied ? "finished" : "to be finished";
    case Defect::damage:
    case Defect::unread:
      break;
  }
  return "";
}

void print_item(Context& context, const RepairItem& item, bool applied) {
  const std::string size = item.bytes == 0 ? "" : "   " + format_size(item.bytes, context.settings.sizes);
  const bool grave = item.defect == Defect::damage;
  say(context, fmt::format("{:<13} {}{}\n  found       {}\n",
                           grave ? context.console.paint_out(Ink::red, "DAMAGED      ") : defect_name(item.defect),
                           printable(item.path), size, printable(item.text)));
  for (const Finding& finding : item.damage) say(context, fmt::format("  damage      {}\n", finding_text(finding)));
  say(context, fmt::format("  repair      {}\n", printable(deed_text(item, applied))));
}

void print_summary(Context& context, const RepairReport& report) {
  std::uint64_t planned = 0;
  std::uint64_t done = 0;
  for (const RepairItem& item : report.items) {
    planned += item.planned ? 1 : 0;
    done += item.done ? 1 : 0;
  }
  std::string line = format_counted(report.checkpoints, "checkpoint") + " checked";
  if (report.items.empty()) line += ", nothing to repair";
  if (!report.items.empty() && report.applied) line += fmt::format(", {} of {} repaired", done, report.items.size());
  if (!report.items.empty() && !report.applied) {
    line += fmt::format(", {} can be repaired. Nothing was changed.", planned);
    if (planned > 0) line += " Run with --apply to repair.";
  }
  say(context, line + "\n");
}

void put_item(json::Writer& out, const RepairItem& item) {
  out.begin_object().member("defect", defect_name(item.defect));
  put_text(out, "path", item.path);
  put_text(out, "text", item.text);
  out.member("bytes", item.bytes);
  put(out.key("damage"), item.damage);
  out.member("planned", item.planned).member("done", item.done);
  put_text(out, "kept_because", item.kept_because);
  out.end_object();
}

/// The JSON document up to the member `salvage`, whose value follows.
json::Writer begin_report(std::string& data, const RepairReport& report) {
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "path", report.path);
  out.member("applied", report.applied).member("checkpoints", report.checkpoints).member("bytes", report.bytes);
  out.key("items").begin_array();
  for (const RepairItem& item : report.items) put_item(out, item);
  out.end_array().key("salvage");
  return out;
}

// --- --out ----------------------------------------------------------------------------------------------------------

void put_names(json::Writer& out, std::string_view key, const std::vector<std::string>& names) {
  out.key(key).begin_array();
  for (const std::string& name : names) {
    out.begin_object();
    put_text(out, "name", name);
    out.end_object();
  }
  out.end_array();
}

void print_salvage(Context& context, const SalvageReport& report, const SalvageRequest& request) {
  const std::size_t shown =
      context.settings.verbose > 0 ? report.lost.size() : std::min<std::size_t>(10, report.lost.size());
  if (report.by_copy) say(context, "note    manifest.json is missing or truncated; ckpt read its copy\n");
  for (const std::string& file : report.missing) say(context, fmt::format("  missing     {}\n", printable(file)));
  for (const Finding& finding : report.damage) say(context, fmt::format("  damage      {}\n", finding_text(finding)));
  for (std::size_t i = 0; i < shown; ++i) say(context, fmt::format("  lost        {}\n", printable(report.lost[i])));
  if (shown < report.lost.size())
    say(context, fmt::format("  lost        {} more; -v shows all\n", report.lost.size() - shown));
  say(context,
      fmt::format("{} of {} {} to {}, {} lost\n", report.tensor_count - report.lost.size(),
                  format_counted(report.tensor_count, "tensor"), request.dry_run ? "can be salvaged" : "salvaged",
                  printable(request.out), report.lost.size()));
}

/// PATH, else a store that was named or that the current directory is or lies in; "" if there is none.
std::string path_or_store(const Words& words) {
  if (!words.arguments.empty()) return words.arguments[0];
  if (words.value("store") != nullptr) return words.text("store");
  const StorePlace here = place_here();
  return here.is_store ? here.store : "";
}

Answer run_salvage(Context& context) {
  const Words& words = context.words;
  SalvageRequest request{.path = path_or_store(words),
                         .out = words.text("out"),
                         .dry_run = words.on("dry-run"),
                         .by = who(),
                         .now = now()};
  if (request.out.empty()) return failed({.code = Errc::usage, .message = "--out: missing PATH"});
  auto report = ask_alone(context, [&](Session& session) -> Result<SalvageReport> {
    CKPT_TRY(request.path, path_of(session, words, request.path));
    return salvage(session, request);
  });
  if (!report) return failed(std::move(report).error(), "the damaged checkpoint is unchanged");
  Answer out;
  if (!report->lost.empty()) {
    out.exit_code = exit_code(Errc::not_done);
    out.warnings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("{} of {} tensors are lost", report->lost.size(), report->tensor_count)});
  }
  print_salvage(context, *report, request);
  if (!context.settings.json) return out;
  json::Writer data = begin_report(out.data, {.path = request.path, .checkpoints = 1});
  data.begin_object();
  put_text(data, "out", request.out);
  data.member("dry_run", request.dry_run).member("by_copy", report->by_copy).member("tensors", report->tensor_count);
  data.member("bytes", report->conversion.target_bytes);
  put_names(data, "lost", report->lost);
  put_names(data, "missing", report->missing);
  put(data.key("damage"), report->damage);
  data.end_object().end_object();
  return out;
}

}  // namespace

Answer run_repair(Context& context) {
  const Words& words = context.words;
  if (words.value("out") != nullptr) {
    if (!words.on("apply")) return run_salvage(context);
    return failed({.code = Errc::usage, .message = "--out and --apply cannot be used together"});
  }
  RepairRequest request{.path = path_or_store(words), .apply = words.on("apply"), .by = who(), .clock = now};
  if (request.apply && words.on("dry-run"))
    return failed({.code = Errc::usage, .message = "--apply and --dry-run cannot be used together"});
  if (request.path.empty())
    return failed({.code = Errc::usage, .message = "missing PATH", .hint = "name a path, or a store with --store"});
  auto timeout = lock_timeout_of(words);
  if (!timeout) return failed(std::move(timeout).error());
  request.lock_timeout = *timeout;
  auto report = ask_alone(context, [&](Session& session) -> Result<RepairReport> {
    CKPT_TRY(request.path, path_of(session, words, request.path));
    return repair(session, request);
  });
  if (!report) return failed(std::move(report).error());
  Answer out;
  out.exit_code = report->is_broken()     ? exit_code(Errc::differs)
                  : report->is_complete() ? 0
                                          : exit_code(Errc::not_done);
  for (const RepairItem& item : report->items) {
    print_item(context, item, report->applied);
    const bool undone = item.defect == Defect::unread || (report->applied && item.planned && !item.done);
    if (undone)
      out.warnings.push_back(
          {.severity = Severity::warning, .text = fmt::format("{}: {}: {}", item.path, item.text, item.kept_because)});
  }
  print_summary(context, *report);
  print_findings(context, out.warnings);
  if (context.settings.json) begin_report(out.data, *report).value(nullptr).end_object();
  return out;
}

}  // namespace ckpt::cli
