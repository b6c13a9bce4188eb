#include "cli/report/prune_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "catalog/index/names.hpp"
#include "catalog/report/explain.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/output/table.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/nearest.hpp"

namespace ckpt::cli {
namespace {

using catalog::Action;

/// A plan of more checkpoints shows those that go, and those that only a guard keeps; -v shows all.
constexpr std::size_t kRowsShown = 40;

std::string keeps_text(const PrunePart& part) {
  std::string out;
  for (const catalog::Rule& rule : part.policy.keep) out += (out.empty() ? "" : "; ") + catalog::rule_meaning(rule);
  if (part.policy.drop_optimizer_after)
    out += fmt::format("; weights only after {}", catalog::duration_text(*part.policy.drop_optimizer_after));
  return out;
}

struct RunTotals {
  std::uint64_t count = 0;
  std::uint64_t deleted = 0;
  std::uint64_t demoted = 0;
  std::uint64_t freed = 0;

  void add(const RunTotals& other) {
    count += other.count;
    deleted += other.deleted;
    demoted += other.demoted;
    freed += std::min(other.freed, UINT64_MAX - freed);
  }
};

std::map<std::string, RunTotals> totals_of(const PrunePlan& plan) {
  std::map<std::string, RunTotals> out;
  for (const PrunePart& part : plan.parts) {
    for (std::size_t i = 0; i < part.entries.size(); ++i) {
      const Action action = planned_action(part, i);
      const bool goes = action == Action::trash;
      const bool shrinks = action == Action::demote;
      out[part.checkpoints[i].run].add({.count = 1,
                                        .deleted = goes ? 1U : 0U,
                                        .demoted = shrinks ? 1U : 0U,
                                        .freed = goes || shrinks ? part.retention.decisions[i].bytes_freed : 0});
    }
  }
  return out;
}

void print_totals(Context& context, const PrunePlan& plan) {
  const auto totals = totals_of(plan);
  RunTotals all;
  for (const auto& [run, one] : totals) all.add(one);
  Table table{.columns = {{.title = "RUN", .shrinks = true},
                          {.title = "CHECKPOINTS", .right = true},
                          {.title = "KEEP", .right = true},
                          {.title = "DELETE", .right = true},
                          {.title = "WEIGHTS ONLY", .right = true},
                          {.title = "FREES", .right = true}}};
  const auto add = [&](const std::string& run, const RunTotals& one) {
    table.rows.push_back({run, std::to_string(one.count), std::to_string(one.count - one.deleted),
                          std::to_string(one.deleted), all.demoted == 0 ? "" : std::to_string(one.demoted),
                          format_size(one.freed, context.settings.sizes)});
  };
  for (const auto& [run, one] : totals) add(printable(run), one);
  if (totals.size() > 1) add("total", all);
  if (!totals.empty()) say(context, draw_aligned(table, context.console.width()).text + "\n");
}

std::string_view decision_word(Action action) {
  switch (action) {
    case Action::trash:
      return "delete";
    case Action::demote:
      return "weights only";
    case Action::skip:
      return "skip";
    case Action::keep:
    case Action::block:
      break;
  }
  return "keep";
}

/// Whether a row is shown where not all are.
bool is_notable(const PrunePart& part, std::uint32_t i) {
  const Action action = planned_action(part, i);
  return action != Action::keep || part.held_back.contains(i) || part.retention.decisions[i].would_be_trash;
}

void print_decisions(Context& context, const PrunePlan& plan) {
  std::size_t total = 0;
  for (const PrunePart& part : plan.parts) total += part.entries.size();
  const bool tsv = context.words.on("tsv");
  const bool shows_all = tsv || context.settings.verbose > 0 || total <= kRowsShown;
  Table table{.columns = {{.title = "CHECKPOINT", .shrinks = true, .least = 16},
                          {.title = tsv ? "BYTES" : "SIZE", .right = true},
                          {.title = "DECISION"},
                          {.title = "WHY", .least = 24, .wraps = true}}};
  std::size_t left = 0;
  for (const PrunePart& part : plan.parts) {
    const catalog::ShortNames labels(part.entries);
    for (const std::uint32_t i : part.retention.order) {
      if (!shows_all && (!is_notable(part, i) || table.rows.size() >= kRowsShown)) {
        ++left;
        continue;
      }
      const catalog::Checkpoint& one = part.checkpoints[i];
      const std::string size = tsv ? std::to_string(one.bytes) : format_size(one.bytes, context.settings.sizes);
      table.rows.push_back({printable(labels.of(part.entries[i])), size,
                            std::string(decision_word(planned_action(part, i))), printable(why_text(part, i))});
    }
  }
  const auto paint = [&](std::size_t column, const std::string& cell, std::string_view text) {
    if (column != 2) return std::string(text);
    return context.console.paint_out(cell == "delete"         ? Ink::red
                                     : cell == "weights only" ? Ink::yellow
                                                              : Ink::green,
                                     text);
  };
  if (!table.rows.empty())
    say(context, tsv ? draw_tsv(table) : draw_aligned(table, context.console.table_width(), paint).text);
  if (left != 0) say(context, fmt::format("{} more kept or deleted; -v shows all\n", format_count(left)));
}

/// The same command with its options, without those that only show the plan.
std::string same_command(const Words& words) {
  std::string out = "ckpt prune";
  for (const std::string& run : words.arguments) out += " " + shell_word(run);
  for (const Flag& flag : words.verb->flags) {
    const bool is_mode = flag.name == "apply" || flag.name == "yes" || flag.name == "dry-run" || flag.name == "check";
    const Value* value = words.value(flag.name);
    if (is_mode || value == nullptr || !value->origin.starts_with("-")) continue;
    if (flag.value.empty()) {
      if (words.on(flag.name)) out += fmt::format(" --{}", flag.name);
      continue;
    }
    for (const std::string& text : words.all(flag.name)) out += fmt::format(" --{} {}", flag.name, shell_word(text));
  }
  return out;
}

/// Whether a part was stopped because of its share alone: -y approves that.
bool needs_approval(const PrunePlan& plan) {
  return std::ranges::any_of(plan.parts,
                             [](const PrunePart& part) { return part.retention.aborted && !part.unknown_metric; });
}

bool is_stuck(const PrunePlan& plan) {
  return std::ranges::any_of(plan.parts, [](const PrunePart& part) { return part.unknown_metric.has_value(); });
}

}  // namespace

void print_plan(Context& context, const PrunePlan& plan, bool applied) {
  if (context.words.on("tsv")) return print_decisions(context, plan);
  const SizeStyle sizes = context.settings.sizes;
  if (is_store_found(context.words, plan.store)) say(context, fmt::format("store   {}\n", printable(plan.store)));
  if (plan.policies.replaces_file)
    say(context, fmt::format("note    {} is not used: the rules of the command line replace it\n", kPolicyFile));
  for (const PrunePart& part : plan.parts) {
    if (!part.entries.empty())
      say(context, fmt::format("policy  {}: {}: keep {}\n", printable(plan.policies.source),
                               printable(part.policy.runs), printable(keeps_text(part))));
  }
  if (is_stuck(plan) && !applied) return;  // what a rule that keeps nothing by mistake decides misleads
  print_totals(context, plan);
  print_decisions(context, plan);
  for (const std::string& run : plan.ruleless) {
    const auto elsewhere = plan.elsewhere.find(run);
    say(context,
        elsewhere == plan.elsewhere.end()
            ? fmt::format("note    {}: no policy matches this run; nothing in it is deleted\n", printable(run))
            : fmt::format("note    {}: skipped; governed by {}/{} (ckpt prune --store {})\n", printable(run),
                          printable(elsewhere->second), kPolicyFile, printable(shell_path(elsewhere->second))));
  }
  for (const std::string& difference : plan.policies.differences)
    say(context, fmt::format("note    {}\n", printable(difference)));
  if (!applied && plan.purge_due.count != 0)
    say(context,
        fmt::format("note    {} in the trash expired: --apply deletes {} permanently ({})\n", plan.purge_due.count,
                    plan.purge_due.count == 1 ? "it" : "them", format_size(plan.purge_due.bytes, sizes)));
}

void print_plan_end(Context& context, const PrunePlan& plan) {
  if (context.words.on("tsv")) return;
  if (is_stuck(plan)) return;
  const SizeStyle sizes = context.settings.sizes;
  std::uint64_t count = 0;
  for (const PrunePart& part : plan.parts) count += part.entries.size();
  std::string line = fmt::format("would delete {} of {}", plan.trash_count, format_counted(count, "checkpoint"));
  if (plan.demote_count != 0) line += fmt::format(", drop the optimizer of {}", plan.demote_count);
  line += fmt::format(", free {}", format_size(plan.freed_bytes, sizes));
  if (plan.recycled_bytes != 0)
    line += fmt::format(", recycle {} for the next save", format_size(plan.recycled_bytes, sizes));
  say(context, line + ". Nothing was deleted.\n");
  if (plan.trash_count + plan.demote_count == 0) return;
  const bool asks = needs_approval(plan);
  if (asks) {
    for (const PrunePart& part : plan.parts)
      if (part.retention.aborted) say(context, fmt::format("note    {}\n", printable(*part.retention.aborted)));
  }
  say(context, fmt::format("to do it: {} --apply{}\n", same_command(context.words), asks ? " -y" : ""));
}

void print_report(Context& context, const PrunePlan& plan, const PruneReport& report, catalog::Time deleted) {
  if (context.words.on("tsv")) return;
  const SizeStyle sizes = context.settings.sizes;
  const TrashSum& waits = report.trashed_wait;
  std::string line = format_counted(report.trashed, "checkpoint");
  if (waits.count != 0 && waits.count != report.trashed) line += fmt::format(" deleted, {} of them", waits.count);
  if (report.trashed == 0 && report.demoted == 0) {
    say(context, "0 checkpoints deleted\n");
  } else if (report.trashed != 0 && waits.count == 0) {
    say(context, line + " deleted\n");
  } else if (report.trashed != 0) {
    say(context, fmt::format("{} moved to the trash, {}\n", line, format_size(waits.bytes, sizes)));
  }
  if (report.demoted != 0) {
    line = format_counted(report.demoted, "checkpoint") + " reduced to weights";
    if (report.demoted_wait.count != 0)
      line += fmt::format(", {} of optimizer state in the trash", format_size(report.demoted_wait.bytes, sizes));
    say(context, line + "\n");
  }
  const auto& gone = report.purged.gone;
  const auto optimizers = static_cast<std::uint64_t>(
      std::ranges::count_if(gone, [](const catalog::TrashEntry& entry) { return !entry.record.dropped.empty(); }));
  line = gone.size() == optimizers ? "" : format_counted(gone.size() - optimizers, "checkpoint");
  if (optimizers != 0) line += (line.empty() ? "" : " and ") + format_counted(optimizers, "optimizer");
  if (!gone.empty())
    say(context, fmt::format("{} deleted permanently{}, {} freed\n", line,
                             report.purged_early ? " before the grace period ended, because space is short" : "",
                             format_size(report.purged.bytes, sizes)));
  if (report.purged.recycled_count != 0)
    say(context, fmt::format("{} of these recycled for the next save; {} stay in use\n", report.purged.recycled_count,
                             format_size(report.purged.recycled_bytes, sizes)));
  if (report.purged.emptied_bytes != 0)
    say(context, fmt::format("{} of recycled files freed\n", format_size(report.purged.emptied_bytes, sizes)));
  if (waits.count + report.demoted_wait.count == 0) return;
  catalog::Time until = catalog::Time::max();
  for (const PruneStep& step : report.steps) {
    const PrunePart& part = plan.parts[step.part];
    const bool recycled = std::ranges::count(part.recycled, static_cast<std::uint32_t>(step.index)) != 0;
    if (step.done && !recycled) until = std::min(until, deleted + part.policy.trash.ttl);
  }
  say(context, fmt::format("in the trash until {}; to restore: ckpt undelete --since {}{}\n", minute_text(until),
                           catalog::time_text(deleted), store_option(context.words)));
}

void print_check_policy(Context& context, const PrunePlan& plan) {
  for (const PrunePart& part : plan.parts) {
    say(context,
        fmt::format("policy  {} ({}{})\n", printable(part.policy.runs),
                    format_counted(part.entries.size(), "checkpoint"), part.first_run ? ", new or changed" : ""),
        true);
    for (std::size_t r = 0; r < part.policy.keep.size(); ++r) {
      std::uint64_t kept = 0;
      for (const catalog::Decision& decision : part.retention.decisions) {
        kept += std::any_of(decision.reasons.begin(), decision.reasons.end(), [&](const catalog::Reason& reason) {
          return reason.cause == catalog::Reason::Cause::rule && reason.rule == r;
        });
      }
      const catalog::Rule& rule = part.policy.keep[r];
      say(context,
          fmt::format("  {:<14} keeps {:>6}   {}\n", printable(rule.id), kept, printable(catalog::rule_meaning(rule))),
          true);
    }
    if (part.policy.drop_optimizer_after)
      say(context,
          fmt::format("  weights only   after {}\n", catalog::duration_text(*part.policy.drop_optimizer_after)), true);
    say(context, fmt::format("  would delete   {} of {}\n", part.retention.trash_count, part.entries.size()), true);
  }
  for (const catalog::RunInterval& one : plan.policies.run_intervals) {
    say(context, fmt::format("interval  when to save, for {}\n", printable(one.runs)), true);
    for (const std::string& line : interval_meaning(one.rules)) say(context, "  " + line + "\n", true);
  }
  if (!plan.policies.interval) return;
  say(context, "interval  when to save\n", true);
  for (const std::string& line : interval_meaning(*plan.policies.interval))
    say(context, fmt::format("  {}\n", line), true);
}

Error guard_error(const PrunePlan& plan) {
  Error out{.code = Errc::guarded, .message = plan.store + ": stopped", .file = plan.store};
  for (const PrunePart& part : plan.parts) {
    if (!part.retention.aborted) continue;
    out.message = fmt::format("{}: nothing was deleted: {}", plan.store, *part.retention.aborted);
    if (!part.unknown_metric) {
      out.hint = "review the plan with 'ckpt prune', then run once with --apply -y";
      return out;
    }
    const auto near = nearest(part.unknown_metric->metric, part.unknown_metric->known);
    out.hint = near ? fmt::format("did you mean '{}'?", *near)
               : part.unknown_metric->known.empty()
                   ? "record metrics with 'ckpt save --metric' or 'ckpt mark NAME --metric'"
                   : fmt::format("metrics: {}", fmt::join(part.unknown_metric->known, ", "));
    return out;
  }
  return out;
}

}  // namespace ckpt::cli
