#include <fmt/format.h>

#include "api/catalog/next_save.hpp"
#include "catalog/bucket.hpp"
#include "catalog/policy_flags.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/text/units.hpp"
#include "cli/words/flag_values.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

Result<double> part_of(std::string_view text) {
  CKPT_TRY(const double percent, catalog::parse_percent(text));
  if (!(percent > 0)) return fail(Errc::usage, "expected a share above 0%");
  return percent / 100;
}

Result<std::uint64_t> step_of(std::string_view text) {
  return parse_count(text, 0, UINT64_MAX - 1);
}

Result<std::uint64_t> steps_of(std::string_view text) {
  return parse_count(text, 1, UINT64_MAX);
}

Result<NextSaveRequest> read_next_save_request(const Words& words) {
  CKPT_CHECK(runs_of(words));
  NextSaveRequest out{.store = store_of(words), .run = join_path(words.arguments.front(), ""), .now = now()};
  if (out.run.starts_with("./")) out.run.erase(0, 2);
  if (out.run.find_first_of("*?[") != std::string::npos)
    return fail({.code = Errc::usage, .message = out.run + ": a pattern", .hint = "name one run"});
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
    return fail(Errc::usage, "--max-overhead only limits other rules; add one, e.g. --optimal");
  }
  if (rules.policy.before_end_s && !out.time_left_s) return fail(Errc::usage, "--before-end needs --time-left");
  return out;
}

std::string last_text(const NextSaveReport& report, catalog::Time now) {
  if (!report.last) return report.unusable == 0 ? "no checkpoint yet" : "no usable checkpoint";
  return fmt::format("last step {}, {} ago", report.last->checkpoint.step,
                     age_text(report.last->checkpoint.created, now));
}

/// "next at step 1500, or in 18 min 00 s".
std::string next_text(const NextSaveReport& report) {
  std::string out;
  if (report.next.step) out = fmt::format("at step {}", *report.next.step);
  if (report.due_at)
    out += fmt::format("{}in {}", out.empty() ? "" : ", or ", format_seconds(report.next.in_s.value_or(0)));
  return out.empty() ? "next: unknown" : "next " + out;
}

std::string report_data(const NextSaveRequest& request, const NextSaveReport& report) {
  using Number = std::optional<double>;
  const auto number = [](double value) { return value > 0 ? Number(value) : Number(); };
  const auto measured = [&](double value) { return report.measured.saves != 0 ? Number(value) : Number(); };
  const auto time = [](const catalog::Time& value) { return catalog::time_text(value); };
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "run", request.run);
  out.member("due", report.next.answer.save).member("because", report.next.answer.text);
  out.member("step", request.step).member("next_step", report.next.step);
  put_optional(out, "next_time", report.due_at ? time(*report.due_at) : "");
  out.member("last_step", report.last ? std::optional(report.last->checkpoint.step) : std::nullopt);
  put_optional(out, "last_time", report.last ? time(report.last->checkpoint.created) : "");
  out.member("rolled_back", report.rolled_back).member("rules", interval_meaning(report.rules));
  out.member("rules_from", report.source).member("planned_interval_s", number(report.next.planned_interval_s));
  out.member("stall_s", measured(report.measured.costs.stall_s));
  out.member("durable_s", measured(report.measured.costs.drain_s));
  out.member("step_s", number(report.measured.step_s)).member("mtbf_s", number(report.measured.costs.mtbf_s));
  out.end_object();
  return data;
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
  out.data = report_data(*request, *report);
  const std::string& why = report->next.answer.text;
  std::string line = due ? why : next_text(*report);
  if (!due && !why.empty()) line += fmt::format(" ({})", why);
  say(context, fmt::format("{:<8} {} · {}\n", due ? "due" : "not yet", line, last_text(*report, request->now)));
  return out;
}

}  // namespace ckpt::cli
