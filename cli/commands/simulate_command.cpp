#include "cli/commands/simulate_command.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/simulate_prune.hpp"
#include "catalog/report/explain.hpp"
#include "cli/commands/session.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kPictureWidth = 50;

Result<SimulateRequest> read_simulate_request(const Words& words, const std::string& store, PolicyWords policy) {
  SimulateRequest out{.store = store, .policy = std::move(policy), .now = now()};
  if (words.text("interval").empty() || words.text("until").empty())
    return fail({.code = Errc::usage,
                 .message = fmt::format("{} needs --interval STEPS and --until STEPS",
                                        words.on("simulate") ? "--simulate" : "ckpt policy simulate"),
                 .hint = "--interval 1000 --until 100000: a save every 1000 steps, up to step 100000"});
  CKPT_TRY(out.interval, parse_count(words.text("interval"), 1, INT64_MAX));
  CKPT_TRY(out.until, parse_count(words.text("until"), 1, INT64_MAX));
  if (const std::string time = words.text("step-time"); !time.empty()) {
    CKPT_TRY(out.step_time, parse_duration(time));
  }
  if (const std::string size = words.text("checkpoint-size"); !size.empty()) {
    CKPT_TRY(out.bytes, parse_size(size));
  }
  return out;
}

/// The saves until a moment in their order, each cell a few neighbours: whether one is kept.
std::string picture_line(const catalog::Schedule& schedule, const catalog::SimulatedMoment& moment, std::size_t width) {
  const std::uint64_t saves = schedule.until / schedule.interval;
  const auto cell_of = [&](std::uint64_t step) {
    return static_cast<std::size_t>((step / schedule.interval - 1) * width / saves);
  };
  std::string out(cell_of(moment.step) + 1, '.');
  for (const catalog::SimulatedMoment::Kept& kept : moment.kept) {
    char& cell = out[cell_of(kept.step)];
    if (cell != '#') cell = kept.weights_only ? 'w' : '#';
  }
  return out;
}

void print_picture(Context& context, const SimulatedPolicy& one) {
  const catalog::Schedule& schedule = one.schedule;
  const std::size_t width = std::min<std::size_t>(kPictureWidth, one.outcome.saves);
  say(context, fmt::format("\n  {:>12}  kept, from step {} to {} (# whole{}, . deleted{})\n", "after step",
                           schedule.interval, schedule.until, one.outcome.demoted == 0 ? "" : ", w weights only",
                           one.outcome.saves > width ? "; a column may be several saves" : ""));
  for (const catalog::SimulatedMoment& moment : one.outcome.moments) {
    say(context, fmt::format("  {:>12}  {:<{}}  {:>4}  {:>9}\n", moment.step, picture_line(schedule, moment, width),
                             width, moment.kept.size(), format_size(moment.bytes, context.settings.sizes)));
  }
}

void print(Context& context, const SimulatedPolicy& one) {
  const SizeStyle sizes = context.settings.sizes;
  const catalog::Schedule& schedule = one.schedule;
  const catalog::Simulation& outcome = one.outcome;
  std::string rules;
  for (const catalog::Rule& rule : one.policy.keep)
    rules += fmt::format("{}{} ({})", rules.empty() ? "" : " · ", catalog::rule_meaning(rule), rule.id);
  say(context, fmt::format("policy  {}: keep {}\n", printable(one.policy.runs), printable(rules)), true);
  const auto line = [&](const char* what, const std::string& text) {
    say(context, fmt::format("  {:<12} {}\n", what, text), true);
  };
  line("saves",
       fmt::format("{}, every {} steps to {}, of {}{}", outcome.saves, schedule.interval, schedule.until,
                   format_size(schedule.bytes, sizes), one.like.empty() ? "" : " each, as " + printable(one.like)));
  line("deleted", fmt::format("{}{}", outcome.trashed,
                              outcome.demoted == 0 ? "" : fmt::format(", {} reduced to weights", outcome.demoted)));
  line("at the end",
       fmt::format("{}, {}", format_counted(outcome.kept, "checkpoint"), format_size(outcome.kept_bytes, sizes)));
  const bool recycles = one.policy.trash.recycle != 0;
  line("peak", fmt::format("{} at step {}, trash {}counted", format_size(outcome.peak_bytes, sizes), outcome.peak_step,
                           recycles ? "and retired files " : ""));
  if (recycles) line("overwritten", format_size(outcome.reused_bytes, sizes) + " of retired files, by the saves");
  line("worst gap", fmt::format("{} steps, from {} to {}", outcome.worst_gap, outcome.worst_gap_begin,
                                outcome.worst_gap_begin + outcome.worst_gap));
  line("one is lost", fmt::format("the next verified one is at most {} steps away (that of step {})",
                                  outcome.worst_loss, outcome.worst_loss_step));
  line("newest lost", fmt::format("at most {} steps are trained again", outcome.worst_rework));
  print_picture(context, one);
}

void put_policy(json::Writer& out, const SimulatedPolicy& one) {
  const catalog::Simulation& outcome = one.outcome;
  out.begin_object();
  put_text(out, "runs", one.policy.runs);
  out.member("interval", one.schedule.interval).member("until", one.schedule.until);
  out.member("step_ms", one.schedule.step_time.count()).member("bytes", one.schedule.bytes);
  out.member("optimizer_bytes", one.schedule.optimizer_bytes);
  put_text(out, "like", one.like);
  out.member("saves", outcome.saves).member("trashed", outcome.trashed).member("demoted", outcome.demoted);
  out.member("kept", outcome.kept).member("kept_bytes", outcome.kept_bytes);
  out.member("peak_bytes", outcome.peak_bytes).member("peak_step", outcome.peak_step);
  out.member("reused_bytes", outcome.reused_bytes).member("worst_gap", outcome.worst_gap);
  out.member("worst_gap_begin", outcome.worst_gap_begin).member("worst_loss", outcome.worst_loss);
  out.member("worst_loss_step", outcome.worst_loss_step).member("worst_rework", outcome.worst_rework);
  out.key("moments").begin_array();
  for (const catalog::SimulatedMoment& moment : outcome.moments) {
    std::vector<std::uint64_t> whole;
    std::vector<std::uint64_t> weights;
    for (const catalog::SimulatedMoment::Kept& kept : moment.kept)
      (kept.weights_only ? weights : whole).push_back(kept.step);
    out.begin_object().member("step", moment.step).member("bytes", moment.bytes);
    out.member("whole", whole).member("weights_only", weights).end_object();
  }
  out.end_array().end_object();
}

}  // namespace

Answer run_simulation(Context& context, const std::string& store, PolicyWords policy) {
  auto request = read_simulate_request(context.words, store, std::move(policy));
  if (!request) return failed(std::move(request).error());
  const auto report = ask_alone(context, [&](Session& session) { return simulate_prune(session.io, *request); });
  if (!report) return failed(report.error());

  Answer out;
  std::vector<Finding> findings;
  for (const std::string& warning : report->warnings)
    findings.push_back({.severity = Severity::warning, .text = warning});
  for (const SimulatedPolicy& one : report->policies) print(context, one);
  for (const std::string& difference : report->differences)
    say(context, fmt::format("note    {}\n", printable(difference)));
  print_findings(context, findings);
  take_warnings(out, findings);
  json::Writer data = data_writer(out.data);
  data.begin_object();
  put_text(data, "store", report->store);
  put_text(data, "policy", report->source);
  if (context.words.on("simulate")) {  // the document of prune
    data.member("decision", "simulated").key("aborted_because").begin_array().end_array();
    data.key("checkpoints").begin_array().end_array();
    for (const char* none : {"delete_count", "demote_count", "bytes_freed", "bytes_for_next_save"})
      data.member(none, 0);
  } else {
    data.member("action", "simulate");
  }
  data.member("differences", report->differences).key("simulations").begin_array();
  for (const SimulatedPolicy& one : report->policies) put_policy(data, one);
  data.end_array().end_object();
  return out;
}

}  // namespace ckpt::cli
