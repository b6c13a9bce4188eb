#include <fmt/format.h>

#include "api/repair.hpp"
#include "cli/catalog_words.hpp"
#include "cli/commands.hpp"
#include "cli/session.hpp"

namespace ckpt::cli {
namespace {

/// What is done about it, in the tense of the run.
std::string deed_text(const RepairItem& item, bool applied) {
  if (!item.planned || (applied && !item.done)) return "kept: " + item.kept_because;
  switch (item.defect) {
    case Defect::left_over:
      return applied ? "removed" : "to be removed";
    case Defect::manifest:
    case Defect::manifest_copy:
      return fmt::format("every checksum is right; {}restored from {}", applied ? "" : "to be ", item.from);
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
                           grave ? context.console.paint_out(Ink::red, "DAMAGE       ") : defect_name(item.defect),
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
  std::string line = format_counted(report.checkpoints, "checkpoint") + " looked at";
  if (report.items.empty()) line += ", nothing to repair";
  if (!report.items.empty() && report.applied) line += fmt::format(", {} of {} mended", done, report.items.size());
  if (!report.items.empty() && !report.applied) {
    line += fmt::format(", {} can be mended.  Nothing was changed.", planned);
    if (planned > 0) line += " To do it: add --apply";
  }
  say(context, line + "\n");
}

Json item_json(const RepairItem& item) {
  Json out;
  out["defect"] = defect_name(item.defect);
  put_text(out, "path", item.path);
  put_text(out, "text", item.text);
  out["bytes"] = item.bytes;
  out["damage"] = to_json(item.damage);
  out["planned"] = item.planned;
  out["done"] = item.done;
  put_text(out, "kept_because", item.kept_because);
  return out;
}

Json report_json(const RepairReport& report) {
  Json out;
  put_text(out, "path", report.path);
  out["applied"] = report.applied;
  out["checkpoints"] = report.checkpoints;
  out["bytes"] = report.bytes;
  out["items"] = Json::array();
  for (const RepairItem& item : report.items) out["items"].push_back(item_json(item));
  return out;
}

}  // namespace

Answer run_repair(Context& context) {
  const Words& words = context.words;
  RepairRequest request{.path = words.arguments[0], .apply = words.on("apply"), .by = who(), .clock = now};
  if (request.apply && words.on("dry-run"))
    return failed({.code = Errc::usage, .message = "--apply and --dry-run: choose one"});
  if (request.path.empty()) return failed({.code = Errc::usage, .message = "the path is empty"});
  auto timeout = lock_timeout_of(words);
  if (!timeout) return failed(std::move(timeout).error());
  request.lock_timeout = *timeout;
  auto opened = OpenSession::alone(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;
  if (open.failure() != nullptr) return failed(*open.failure());
  auto report = repair(open.session(), request);
  open.end_progress();
  if (!report) return failed(name_signal(std::move(report).error()));
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
  if (context.settings.json) out.data = report_json(*report);
  return out;
}

}  // namespace ckpt::cli
