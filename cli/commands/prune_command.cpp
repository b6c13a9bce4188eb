#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "api/catalog/prune.hpp"
#include "catalog/explain.hpp"
#include "catalog/policy_flags.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/commands/simulate_command.hpp"
#include "cli/output/table.hpp"
#include "cli/words/catalog_words.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

using catalog::Action;

Result<PruneRequest> read_prune_request(const Words& words) {
  PruneRequest out{.store = store_of(words), .runs = words.arguments, .now = now()};
  out.carries_out = words.on("apply");
  out.approved = words.on("yes");
  out.include_corrupt = words.on("include-corrupt");
  out.policy.file = words.text("policy");
  for (const std::string& flag : catalog::policy_flags()) {
    for (const std::string& value : words.all(flag)) out.policy.flags.emplace_back(flag, value);
  }
  for (const std::string& series : words.all("drop-series")) {
    CKPT_TRY(const std::uint64_t number, parse_count(series, 0, ~std::uint64_t{0}));
    out.drop_series.push_back(number);
  }
  // --import-policy hf:save_total_limit=3,load_best_model_at_end=true
  const std::string import = words.text("import-policy");
  if (import.empty()) return out;
  const std::size_t colon = import.find(':');
  out.policy.import_system = import.substr(0, colon);
  std::string_view rest = colon == std::string::npos ? std::string_view() : std::string_view(import).substr(colon + 1);
  while (!rest.empty()) {
    const std::string_view option = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), option.size() + 1));
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos)
      return fail(Errc::usage, fmt::format("--import-policy: '{}' is not OPTION=VALUE", option));
    out.policy.import_options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  return out;
}

Result<> check_words(const Words& words) {
  const auto both = [&](std::string_view a, std::string_view b) -> Result<> {
    if (!words.on(a) || !words.on(b)) return {};
    return fail(Errc::usage, fmt::format("--{} and --{} exclude each other", a, b));
  };
  CKPT_CHECK(both("apply", "dry-run"));
  CKPT_CHECK(both("apply", "check"));
  CKPT_CHECK(both("apply", "check-policy"));
  for (const char* other : {"apply", "check", "check-policy"}) CKPT_CHECK(both("simulate", other));
  for (const char* flag : {"interval", "until", "step-time", "checkpoint-size"}) {
    if (!words.text(flag).empty() && !words.on("simulate"))
      return fail(Errc::usage, fmt::format("--{} needs --simulate", flag));
  }
  return both("check", "check-policy");
}

// --- for people -----------------------------------------------------------------------------------------------------

std::string policy_line(const PrunePart& part) {
  std::string out;
  for (const catalog::Rule& rule : part.policy.keep)
    out += fmt::format("{}{} ({})", out.empty() ? "" : " · ", catalog::rule_meaning(rule), rule.id);
  if (part.policy.drop_optimizer_after)
    out += fmt::format(" · weights only after {}", catalog::duration_text(*part.policy.drop_optimizer_after));
  return out;
}

std::string decision_text(const PrunePart& part, std::size_t index) {
  return catalog::action_name(planned_action(part, index));
}

/// Steps with several saves in a run, which are distinguished by generation.
std::set<std::pair<std::string_view, std::uint64_t>> steps_saved_again(const PrunePart& part) {
  std::set<std::pair<std::string_view, std::uint64_t>> seen;
  std::set<std::pair<std::string_view, std::uint64_t>> out;
  for (const catalog::Checkpoint& one : part.checkpoints) {
    if (!seen.emplace(one.run, one.step).second) out.emplace(one.run, one.step);
  }
  return out;
}

void print_part(Context& context, const PrunePart& part) {
  const SizeStyle sizes = context.settings.sizes;
  if (part.entries.empty() || context.settings.json) return;
  say(context, fmt::format("policy  {}: keep {}\n", printable(part.policy.runs), printable(policy_line(part))));
  Table table{.columns = {{.title = "RUN", .shrinks = true},
                          {.title = "STEP", .right = true},
                          {.title = "SIZE", .right = true},
                          {.title = "DECISION"},
                          {.title = "WHY"}}};
  const auto again = steps_saved_again(part);
  for (const std::uint32_t i : part.retention.order) {
    const catalog::Checkpoint& one = part.checkpoints[i];
    std::string step = fmt::format("{}", one.step);
    if (one.generation != 0 && again.contains({one.run, one.step})) step += fmt::format(" (g{})", one.generation);
    const Action action = planned_action(part, i);
    if (context.settings.quiet && action != Action::trash && action != Action::demote) continue;
    table.rows.push_back({printable(one.run), std::move(step), format_size(one.bytes, sizes), decision_text(part, i),
                          printable(why_text(part, i))});
  }
  say(context, context.console.out_is_terminal() ? draw_aligned(table, context.console.width()).text : draw_tsv(table));
  if (part.retention.aborted) say(context, fmt::format("stopped  {}\n", printable(*part.retention.aborted)));
}

void print_names(Context& context, const PrunePlan& plan) {
  for (const PrunePart& part : plan.parts) {
    for (const std::uint32_t i : part.retention.order) {
      if (planned_action(part, i) != Action::trash) continue;
      say(context, printable(part.checkpoints[i].run + "/" + part.entries[i].name) + "\n", true);
    }
  }
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

void print_plan(Context& context, const PrunePlan& plan, bool applied) {
  const SizeStyle sizes = context.settings.sizes;
  for (const PrunePart& part : plan.parts) print_part(context, part);
  for (const std::string& run : plan.ruleless)
    say(context, fmt::format("note    {}: no policy matches this run; nothing in it is deleted\n", printable(run)));
  for (const std::string& difference : plan.policies.differences)
    say(context, fmt::format("note    {}\n", printable(difference)));
  std::uint64_t count = 0;
  for (const PrunePart& part : plan.parts) count += part.entries.size();
  if (applied) return;
  if (plan.purge_due.count != 0)
    say(context,
        fmt::format("note    {} in the trash expired: --apply deletes {} permanently ({})\n", plan.purge_due.count,
                    plan.purge_due.count == 1 ? "it" : "them", format_size(plan.purge_due.bytes, sizes)));
  std::string line = fmt::format("would delete {} of {}", plan.trash_count, format_counted(count, "checkpoint"));
  if (plan.demote_count != 0) line += fmt::format(", drop the optimizer of {}", plan.demote_count);
  line += fmt::format(", free {}", format_size(plan.freed_bytes, sizes));
  if (plan.recycled_bytes != 0)
    line += fmt::format(", recycle {} for the next save", format_size(plan.recycled_bytes, sizes));
  line += ". Nothing was deleted.";
  if (plan.trash_count + plan.demote_count != 0 && !plan.aborted) line += " Run with --apply to do it.";
  say(context, line + "\n");
}

void print_report(Context& context, const PruneReport& report) {
  const SizeStyle sizes = context.settings.sizes;
  const TrashSum& waits = report.trashed_wait;
  std::string line = format_counted(report.trashed, "checkpoint");
  if (waits.count != report.trashed) line += fmt::format(" deleted, {} of them", waits.count);
  if (report.trashed == 0 && report.demoted == 0) {
    say(context, "0 checkpoints deleted\n");
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
}

// --- for scripts ----------------------------------------------------------------------------------------------------

void put_reasons(json::Writer& out, std::string_view key, const std::vector<catalog::Explanation>& reasons) {
  out.key(key).begin_array();
  for (const catalog::Explanation& explanation : reasons) {
    out.begin_object();
    put_text(out, "rule", explanation.rule);
    if (explanation.rank) out.member("rank", *explanation.rank);
    if (explanation.limit) out.member("limit", *explanation.limit);
    if (!explanation.bucket.empty()) put_text(out, "bucket", explanation.bucket);
    if (!explanation.value.empty()) put_text(out, "value", explanation.value);
    put_text(out, "text", explanation.text);
    out.end_object();
  }
  out.end_array();
}

void put_checkpoint(json::Writer& out, const PrunePart& part, std::size_t i) {
  const catalog::Checkpoint& one = part.checkpoints[i];
  const catalog::Decision& decision = part.retention.decisions[i];
  const bool stays = planned_action(part, i) == Action::keep;
  const catalog::Explanations explanation = catalog::explain(decision, one, part.checkpoints, part.policy);
  out.begin_object();
  put_text(out, "run", one.run);
  put_text(out, "name", part.entries[i].name);
  out.member("id", one.id).member("step", one.step).member("bytes", one.bytes);
  out.member("decision", decision_text(part, i)).member("would_be_trash", decision.would_be_trash);
  out.member("bytes_freed", stays ? 0 : decision.bytes_freed);
  put_text(
      out, "why",
      part.held_back.contains(static_cast<std::uint32_t>(i)) ? why_text(part, i) : catalog::why(decision, explanation));
  put_reasons(out, "reasons", explanation.reasons);
  put_reasons(out, "blockers", explanation.blockers);
  put_reasons(out, "near_misses", explanation.near_misses);
  out.end_object();
}

/// Stopped between two deletions.
Failure stopped(const PrunePlan& plan, const PruneReport& report) {
  const std::uint64_t done = report.trashed + report.demoted;
  const std::uint64_t planned = plan.trash_count + plan.demote_count;
  return {.error = name_signal({.code = Errc::interrupted,
                                .message = plan.store + ": stopped",
                                .hint = "run the same command again to continue"}),
          .effect = fmt::format("{} of {} done, none partially", done, format_counted(planned, "deletion"))};
}

void put_report(json::Writer& out, const PrunePlan& plan, const PruneReport& report) {
  out.member("trashed", report.trashed).member("demoted", report.demoted).key("in_trash").begin_object();
  out.member("checkpoints", report.trashed_wait.count).member("bytes", report.trashed_wait.bytes);
  out.member("optimizers", report.demoted_wait.count).member("optimizer_bytes", report.demoted_wait.bytes);
  out.end_object().member("purged", report.purged.gone.size()).member("purged_early", report.purged_early);
  out.member("purged_bytes", report.purged.bytes).member("recycled", report.purged.recycled_count);
  out.member("recycled_bytes", report.purged.recycled_bytes).member("emptied_bytes", report.purged.emptied_bytes);
  out.key("kept").begin_array();
  for (const PruneStep& step : report.steps) {
    if (step.done) continue;
    const PrunePart& part = plan.parts[step.part];
    out.begin_object();
    put_text(out, "run", part.checkpoints[step.index].run);
    put_text(out, "name", part.entries[step.index].name);
    put_text(out, "because", step.kept_because);
    out.end_object();
  }
  out.end_array();
}

/// `report`: null where nothing was carried out.
std::string plan_data(const PrunePlan& plan, const PruneReport* report) {
  constexpr std::size_t kCheckpointBytes = 800;  // a guess: memory of a longer text would be copied as it grows
  std::size_t count = 0;
  for (const PrunePart& part : plan.parts) count += part.entries.size();
  std::string data;
  data.reserve(count * kCheckpointBytes);
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "store", plan.store);
  put_text(out, "policy", plan.policies.source);
  out.member("decision", plan.aborted        ? "aborted"
                         : report == nullptr ? "planned"
                         : report->stopped   ? "stopped"
                                             : "done");
  out.key("aborted_because").begin_array();
  for (const PrunePart& part : plan.parts) {
    if (part.retention.aborted) out.value(*part.retention.aborted);
  }
  out.end_array().key("checkpoints").begin_array();
  for (const PrunePart& part : plan.parts) {
    for (const std::uint32_t i : part.retention.order) put_checkpoint(out, part, i);
  }
  out.end_array().member("delete_count", plan.trash_count).member("demote_count", plan.demote_count);
  out.member("bytes_freed", plan.freed_bytes).member("bytes_for_next_save", plan.recycled_bytes);
  out.key("purge_due").begin_object().member("count", plan.purge_due.count).member("bytes", plan.purge_due.bytes);
  out.end_object().member("differences", plan.policies.differences);
  if (!plan.policies.run_intervals.empty()) {
    out.key("run_intervals").begin_array();
    for (const catalog::RunInterval& one : plan.policies.run_intervals)
      out.begin_object().member("runs", one.runs).member("interval", interval_meaning(one.rules)).end_object();
    out.end_array();
  }
  if (plan.policies.interval) out.member("interval", interval_meaning(*plan.policies.interval));
  if (report != nullptr) put_report(out, plan, *report);
  out.end_object();
  return data;
}

std::vector<Finding> findings_of(const PrunePlan& plan, const PruneReport& report) {
  std::vector<Finding> out;
  for (const std::string& warning : plan.warnings) out.push_back({.severity = Severity::warning, .text = warning});
  for (const PruneStep& step : report.steps) {
    if (step.done) continue;
    const PrunePart& part = plan.parts[step.part];
    out.push_back({.severity = Severity::warning,
                   .text = fmt::format("{}/{}: kept: {}", part.checkpoints[step.index].run,
                                       part.entries[step.index].name, step.kept_because)});
  }
  for (const std::string& kept : report.purged.kept)
    out.push_back({.severity = Severity::warning, .text = "stays in the trash: " + kept});
  return out;
}

}  // namespace

Answer run_prune(Context& context) {
  const Words& words = context.words;
  if (auto sound = check_words(words); !sound) return failed(std::move(sound).error());
  auto request = read_prune_request(words);
  if (!request) return failed(std::move(request).error());
  if (words.on("simulate")) return run_simulation(context, request->policy);
  auto timeout = lock_timeout_of(words);
  if (!timeout) return failed(std::move(timeout).error());
  auto opened = OpenSession::alone(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;
  if (open.failure() != nullptr) return failed(*open.failure());
  auto plan = plan_prune(open.session(), *request);
  open.end_progress();
  if (!plan) return failed(name_signal(std::move(plan).error()));

  Answer out;
  PruneReport report;
  const bool apply = words.on("apply");
  if (words.on("check-policy")) {
    print_check_policy(context, *plan);
  } else if (context.settings.quiet) {
    print_names(context, *plan);
  } else {
    print_plan(context, *plan, apply);
  }
  if (apply) {
    auto done = carry_out(open.session(), *plan, {.now = request->now, .by = who(), .lock_timeout = *timeout});
    if (!done) return failed(name_signal(std::move(done).error()));
    report = *std::move(done);
    print_report(context, report);
  }
  const std::vector<Finding> findings = findings_of(*plan, report);
  print_findings(context, findings);
  take_warnings(out, findings);
  if (context.settings.json) out.data = plan_data(*plan, apply ? &report : nullptr);
  if (report.stopped) {
    out.failures.push_back(stopped(*plan, report));
    out.exit_code = exit_code(out.failures.front().error.code);
    return out;
  }
  const bool would = plan->trash_count + plan->demote_count != 0;
  if (plan->aborted || (words.on("check") && would)) {
    out.exit_code = exit_code(Errc::differs);
  } else if (!report.complete) {
    out.exit_code = exit_code(Errc::not_done);
  }
  return out;
}

}  // namespace ckpt::cli
