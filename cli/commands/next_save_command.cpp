#include <fmt/format.h>

#include "api/catalog/next_save.hpp"
#include "api/catalog/store_words.hpp"
#include "cli/commands/commands.hpp"
#include "cli/output/catalog_text.hpp"
#include "cli/output/units.hpp"
#include "cli/process/session.hpp"
#include "cli/words/catalog_words.hpp"
#include "cli/words/flag_values.hpp"

namespace ckpt::cli {
namespace {

Result<double> part_of(std::string_view text) {
  CKPT_TRY(const double percent, catalog::parse_percent(text));
  if (!(percent > 0)) return fail(Errc::usage, "a part above 0% is expected");
  return percent / 100;
}

Result<std::uint64_t> step_of(std::string_view text) {
  return parse_count(text, 0, UINT64_MAX - 1);
}

Result<std::uint64_t> steps_of(std::string_view text) {
  return parse_count(text, 1, UINT64_MAX);
}

Result<NextSaveRequest> read_next_save_request(const Words& words) {
  NextSaveRequest out{.store = store_of(words), .run = words.arguments.front(), .now = now()};
  IntervalRules rules;
  CKPT_CHECK(read_flag(words, "step", out.step, step_of));
  CKPT_CHECK(read_flag(words, "every-steps", rules.policy.every_steps, steps_of));
  CKPT_CHECK(read_flag(words, "every", rules.policy.every_s, positive_seconds_of));
  CKPT_CHECK(read_flag(words, "max-overhead", rules.policy.most_overhead, part_of));
  CKPT_CHECK(read_flag(words, "before-end", rules.policy.before_end_s, seconds_of));
  CKPT_CHECK(read_flag(words, "time-left", out.time_left_s, seconds_of));
  CKPT_CHECK(read_flag(words, "mtbf", out.mtbf_s, positive_seconds_of));
  CKPT_CHECK(read_flag(words, "restart", out.restart_s, seconds_of));
  CKPT_CHECK(read_flag(words, "step-time", out.step_s, positive_seconds_of));
  rules.policy.optimal = words.on("optimal");
  if (catalog::asks(rules.policy)) {
    out.rules = rules;
  } else if (rules.policy.most_overhead) {
    return fail(Errc::usage, "--max-overhead: it holds rules back: give one as well, such as --optimal");
  }
  if (rules.policy.before_end_s && !out.time_left_s)
    return fail(Errc::usage, "--before-end: --time-left must say how long the job has left");
  return out;
}

std::string last_text(const NextSaveReport& report, catalog::Time now) {
  if (!report.last) return "no checkpoint yet";
  return fmt::format("last step {}, {} ago", report.last->checkpoint.step,
                     age_text(report.last->checkpoint.created, now));
}

/// "next at step 1500, or in 18 min 00 s".
std::string next_text(const NextSaveReport& report) {
  std::string out;
  if (report.next.step) out = fmt::format("at step {}", *report.next.step);
  if (report.due_at)
    out += fmt::format("{}in {}", out.empty() ? "" : ", or ", format_seconds(report.next.in_s.value_or(0)));
  return out.empty() ? "nobody knows when" : "next " + out;
}

Json report_json(const NextSaveRequest& request, const NextSaveReport& report) {
  const auto number = [](double value) { return value > 0 ? Json(value) : Json(); };
  Json out;
  put_text(out, "run", request.run);
  out["due"] = report.next.answer.save;
  out["because"] = report.next.answer.text;
  out["step"] = request.step ? Json(*request.step) : Json();
  out["next_step"] = report.next.step ? Json(*report.next.step) : Json();
  out["next_time"] = report.due_at ? Json(catalog::time_text(*report.due_at)) : Json();
  out["last_step"] = report.last ? Json(report.last->checkpoint.step) : Json();
  out["last_time"] = report.last ? Json(catalog::time_text(report.last->checkpoint.created)) : Json();
  out["rolled_back"] = report.rolled_back;
  out["rules"] = interval_meaning(report.rules);
  out["rules_from"] = report.source;
  out["planned_interval_s"] = number(report.next.planned_interval_s);
  out["stall_s"] = report.measured.saves != 0 ? Json(report.measured.costs.stall_s) : Json();
  out["durable_s"] = report.measured.saves != 0 ? Json(report.measured.costs.drain_s) : Json();
  out["step_s"] = number(report.measured.step_s);
  out["mtbf_s"] = number(report.measured.costs.mtbf_s);
  return out;
}

}  // namespace

Answer run_next_save(Context& context) {
  auto request = read_next_save_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto report = ask_alone(context, [&](Session& session) { return next_save(session.io, *request); });
  if (!report) return failed(std::move(report).error());

  Answer out;
  for (const std::string& text : report->warnings)
    out.warnings.push_back({.severity = Severity::warning, .text = text});
  print_findings(context, out.warnings);
  const bool due = report->next.answer.save;
  out.exit_code = due ? 0 : exit_code(Errc::differs);
  out.data = report_json(*request, *report);
  const std::string& why = report->next.answer.text;
  std::string line = due ? why : next_text(*report);
  if (!due && !why.empty()) line += fmt::format(" ({})", why);
  say(context, fmt::format("{:<8} {} · {}\n", due ? "due" : "not yet", line, last_text(*report, request->now)));
  return out;
}

}  // namespace ckpt::cli
