#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/last_run.hpp"
#include "api/catalog/prune.hpp"
#include "catalog/index/names.hpp"
#include "catalog/policy_flags.hpp"
#include "catalog/report/explain.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/commands/simulate_command.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/report/prune_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

using catalog::Action;

Result<PruneRequest> read_prune_request(const Words& words) {
  CKPT_TRY(std::vector<std::string> runs, runs_of(words));
  PruneRequest out{.store = store_of(words), .runs = std::move(runs), .now = now()};
  out.carries_out = words.on("apply");
  out.approved = words.on("yes");
  out.include_damaged = words.on("include-damaged");
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
    return fail(Errc::usage, fmt::format("--{} and --{} cannot be used together", a, b));
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

void put_checkpoint(json::Writer& out, const PrunePart& part, std::size_t i, const std::string& name) {
  const catalog::Checkpoint& one = part.checkpoints[i];
  const catalog::Decision& decision = part.retention.decisions[i];
  const bool stays = planned_action(part, i) == Action::keep;
  const catalog::Explanations explanation = catalog::explain(decision, one, part.checkpoints, part.policy);
  out.begin_object();
  put_names(out, one.run, name, part.entries[i].name);
  out.member("id", one.id).member("step", one.step).member("bytes", one.bytes);
  out.member("decision", catalog::action_name(planned_action(part, i)))
      .member("would_be_trash", decision.would_be_trash);
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

void put_report(json::Writer& out, const PrunePlan& plan, const std::vector<catalog::ShortNames>& names,
                const PruneReport& report) {
  out.member("trashed", report.trashed).member("demoted", report.demoted).key("in_trash").begin_object();
  out.member("checkpoints", report.trashed_wait.count).member("bytes", report.trashed_wait.bytes);
  out.member("optimizers", report.demoted_wait.count).member("optimizer_bytes", report.demoted_wait.bytes);
  out.end_object().member("purged", report.purged.gone.size()).member("purged_early", report.purged_early);
  out.member("purged_bytes", report.purged.bytes).member("recycled", report.purged.recycled_count);
  out.member("recycled_bytes", report.purged.recycled_bytes).member("emptied_bytes", report.purged.emptied_bytes);
  out.key("kept").begin_array();
  for (const PruneStep& step : report.steps) {
    if (step.done) continue;
    const catalog::Entry& entry = plan.parts[step.part].entries[step.index];
    out.begin_object();
    put_names(out, entry.checkpoint.run, names[step.part].of(entry), entry.name);
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
  std::vector<catalog::ShortNames> names;
  for (const PrunePart& part : plan.parts) {
    names.emplace_back(part.entries);
    for (const std::uint32_t i : part.retention.order) put_checkpoint(out, part, i, names.back().of(part.entries[i]));
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
  if (report != nullptr) put_report(out, plan, names, *report);
  out.end_object();
  return data;
}

/// `routine`: also what a person need not look at: that a checkpoint is being read, or that recycling has no benefit.
std::vector<Finding> findings_of(const PrunePlan& plan, const PruneReport& report, bool routine) {
  std::vector<Finding> out;
  const auto add = [&](std::string text) { out.push_back({.severity = Severity::warning, .text = std::move(text)}); };
  for (const std::string& warning : plan.warnings) {
    const bool is_routine = warning == kNoRecycling || warning.starts_with("rule '");  // a run without the metric
    if (routine || !is_routine) add(warning);
  }
  for (const PruneStep& step : report.steps) {
    if (step.done || (step.in_use && !routine)) continue;
    const PrunePart& part = plan.parts[step.part];
    add(fmt::format("{}@{}: kept: {}", part.checkpoints[step.index].run, part.entries[step.index].name,
                    step.kept_because));
  }
  for (const std::string& kept : report.purged.kept) {
    const bool in_use = kept.find(": being read") != std::string::npos;
    if (routine || !in_use) add("stays in the trash: " + kept);
  }
  return out;
}

/// For `ckpt status`. Not while another process prunes: that one records itself.
void record(Io& io, const PrunePlan& plan, const PruneReport& report, int code) {
  if (code == exit_code(Errc::locked)) return;
  record_last_run(io, plan.store,
                  {.kind = LastRun::Kind::prune,
                   .at = now(),
                   .by = who(),
                   .exit_code = code,
                   .count = report.trashed + report.demoted,
                   .bytes = report.trashed_wait.bytes + report.demoted_wait.bytes});
}

}  // namespace

Answer run_prune(Context& context) {
  const Words& words = context.words;
  if (auto sound = check_words(words); !sound) return failed(std::move(sound).error());
  auto request = read_prune_request(words);
  if (!request) return failed(std::move(request).error());
  if (words.on("simulate")) return run_simulation(context, request->store, request->policy);
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
  const bool checks_policy = words.on("check-policy");
  if (checks_policy) {
    print_check_policy(context, *plan);
  } else {
    print_plan(context, *plan, apply);
  }
  if (apply) {
    auto done = carry_out(open.session(), *plan, {.now = request->now, .by = who(), .lock_timeout = *timeout});
    if (!done) {
      record(open.session().io, *plan, report, exit_code(done.error().code));
      return failed(name_signal(std::move(done).error()));
    }
    report = *std::move(done);
  }
  const std::vector<Finding> findings = findings_of(*plan, report, true);
  print_findings(context, findings_of(*plan, report, !context.settings.quiet));
  take_warnings(out, findings);
  if (apply) {
    print_report(context, *plan, report, request->now);
  } else if (!checks_policy) {
    print_plan_end(context, *plan);
  }
  if (context.settings.json) out.data = plan_data(*plan, apply ? &report : nullptr);
  if (report.stopped) {
    out.failures.push_back(stopped(*plan, report));
    out.exit_code = exit_code(out.failures.front().error.code);
    record(open.session().io, *plan, report, out.exit_code);
    return out;
  }
  // A dry run shows how much would go, and how to approve it; nothing can approve an unknown metric.
  const bool is_guarded = std::ranges::any_of(plan->parts, [&](const PrunePart& part) {
    return part.retention.aborted && (apply || part.unknown_metric.has_value());
  });
  const bool would = plan->trash_count + plan->demote_count != 0;
  if (is_guarded) {
    out.failures.push_back({.error = guard_error(*plan)});
    out.exit_code = exit_code(Errc::guarded);
  } else if (words.on("check") && would) {
    out.exit_code = exit_code(Errc::differs);
  } else if (!report.complete || !plan->unread.empty()) {
    out.exit_code = exit_code(Errc::not_done);
  }
  if (apply) record(open.session().io, *plan, report, out.exit_code);
  return out;
}

}  // namespace ckpt::cli
