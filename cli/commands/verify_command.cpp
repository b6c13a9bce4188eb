#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <span>
#include <utility>

#include "api/catalog/last_run.hpp"
#include "api/catalog/scrub.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/report/verify_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/parse_number.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

/// "5%".
Result<double> share_of(const Value& value) {
  if (!value.text.ends_with('%'))
    return fail(Errc::usage, value.origin + ": '" + value.text + "' is not a share; write a percentage such as 5%");
  constexpr std::uint64_t whole = 1'000'000'000;
  CKPT_TRY(const std::uint64_t parts, parse_share(value.text, whole));
  return static_cast<double>(parts) / static_cast<double>(whole);
}

/// --sample and --seed.
Result<std::optional<Sample>> sample_of(const Words& words) {
  const Value* share = words.value("sample");
  Sample out;
  if (const Value* seed = words.value("seed"); seed != nullptr) {
    if (share == nullptr) return fail(Errc::usage, "--seed needs --sample");
    CKPT_TRY(out.seed, parse_count(seed->text, 0, ~std::uint64_t{0}));
  }
  if (share == nullptr) return std::nullopt;
  CKPT_TRY(out.share, share_of(*share));
  return out;
}

// --- --all ----------------------------------------------------------------------------------------------------------

/// Options of one of the two forms of the command.
Result<> check_flags(const Words& words) {
  const bool all = words.on("all");
  for (const std::string_view flag : {"since", "max-age"}) {
    if (all || words.value(flag) == nullptr) continue;
    return fail(Errc::usage, fmt::format("--{}: needs --all", flag));
  }
  for (const std::string_view flag : {"seed", "against", "rtol", "atol", "from", "map", "names"}) {
    if (all && words.value(flag) != nullptr)
      return fail(Errc::usage, fmt::format("--all and --{} cannot be used together", flag));
  }
  if (words.on("quick") && words.on("finite"))
    return fail(Errc::usage, "--finite does not work with --quick, which reads no values");
  if (!all && words.arguments.size() != 1)
    return fail(Errc::usage, words.arguments.empty() ? "missing PATH; for a store, use --all"
                                                     : "only one PATH is allowed; for runs of a store, use --all");
  return {};
}

Result<ScrubRequest> read_scrub(const Words& words) {
  CKPT_TRY(std::vector<std::string> runs, runs_of(words));
  ScrubRequest out{.store = store_of(words),
                   .runs = std::move(runs),
                   .quick = words.on("quick"),
                   .finite = words.on("finite"),
                   .by = who(),
                   .clock = now};
  if (const Value* value = words.value("since")) {
    CKPT_TRY(out.since, time_of(*value, now(), false));
  }
  if (const Value* value = words.value("max-age")) {
    const auto age = parse_duration(value->text);
    if (!age) return fail(Errc::usage, fmt::format("{}: {}", value->origin, age.error().message));
    out.max_age = *age;
  }
  if (const Value* value = words.value("sample")) {
    CKPT_TRY(out.share, share_of(*value));
  }
  return out;
}

Finding scrub_finding(const ScrubItem& item, std::string_view text) {
  return {.severity = Severity::warning, .text = fmt::format("{}: {}", item.label, text)};
}

/// Warnings for people: a checkpoint was not verified, or the result could not be stored.
std::vector<Finding> scrub_findings(const ScrubReport& report) {
  std::vector<Finding> out;
  for (const std::string& text : report.warnings) out.push_back({.severity = Severity::warning, .text = text});
  for (const ScrubItem& item : report.items) {
    if (item.error && item.verdict != ScrubVerdict::vanished)
      out.push_back(scrub_finding(item, fmt::format("{}: {}", verdict_name(item.verdict), item.error->message)));
    if (!item.unrecorded_because.empty())
      out.push_back(scrub_finding(item, "the result could not be recorded: " + item.unrecorded_because));
  }
  return out;
}

/// With -q, of a checkpoint that is not intact: one line. One that is in use waits for its next turn.
void print_item_trouble(Context& context, const ScrubItem& item) {
  std::vector<Finding> findings;
  if (item.report && !item.report->ok) findings.push_back(scrub_finding(item, trouble_text(*item.report)));
  const bool routine = item.verdict == ScrubVerdict::vanished || item.verdict == ScrubVerdict::busy;
  if (item.error && !routine)
    findings.push_back(scrub_finding(item, fmt::format("{}: {}", verdict_name(item.verdict), item.error->message)));
  if (!item.unrecorded_because.empty())
    findings.push_back(scrub_finding(item, "the result could not be recorded: " + item.unrecorded_because));
  print_findings(context, findings);
}

/// One that is intact is counted in the summary; -v prints it, too.
void print_item(Context& context, const ScrubItem& item, const VerifyRequest& request) {
  context.console.moving("");
  if (context.settings.quiet) return print_item_trouble(context, item);
  if (item.report) {
    const auto is_warning = [](const Finding& finding) { return finding.severity != Severity::note; };
    const bool is_news = !item.report->ok || std::ranges::any_of(item.report->notes, is_warning);
    if (is_news || context.settings.verbose > 0) print_verify(context, item.label, *item.report, request);
    return;
  }
  std::string verdict = verdict_name(item.verdict);
  std::ranges::transform(verdict, verdict.begin(), [](unsigned char c) { return std::toupper(c); });
  say(context, fmt::format("{}   {}\n", printable(item.label), verdict));
}

std::string scrub_summary(const ScrubReport& report, SizeStyle sizes) {
  std::string out = fmt::format("{} of {} checked", report.checked(), format_counted(report.total, "checkpoint"));
  for (const ScrubVerdict verdict : {ScrubVerdict::intact, ScrubVerdict::damaged, ScrubVerdict::incomplete,
                                     ScrubVerdict::unread, ScrubVerdict::busy, ScrubVerdict::vanished}) {
    const std::uint64_t count = report.count(verdict);
    if (count != 0 || verdict == ScrubVerdict::intact || verdict == ScrubVerdict::damaged)
      out += fmt::format(" · {} {}", count, verdict == ScrubVerdict::intact ? "ok" : verdict_name(verdict));
  }
  out += fmt::format(" · {}   {}", format_size(report.bytes, sizes), format_seconds(report.seconds));
  if (report.due > report.items.size()) out += fmt::format(" · {} more due", report.due - report.items.size());
  return out + "\n";
}

std::string scrub_data(const ScrubReport& report, const ScrubRequest& request, const VerifyRequest& each) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object();
  put_text(out, "store", request.store);
  out.member("checkpoints_in_question", report.total).member("due", report.due);
  out.member("looked_at", report.items.size());
  for (const ScrubVerdict verdict : {ScrubVerdict::intact, ScrubVerdict::damaged, ScrubVerdict::incomplete,
                                     ScrubVerdict::unread, ScrubVerdict::busy, ScrubVerdict::vanished})
    out.member(verdict_name(verdict), report.count(verdict));
  out.member("bytes", report.bytes).member("elapsed_s", report.seconds).key("checkpoints").begin_array();
  for (const ScrubItem& item : report.items) {
    out.begin_object();
    put_names(out, item.entry.checkpoint.run, item.label, item.entry.name);
    out.member("step", item.entry.checkpoint.step);
    out.member("id", item.entry.checkpoint.id);
    put_text(out, "path", item.path);
    out.member("verdict", verdict_name(item.verdict));
    put_text(out, "reason", item.error ? item.error->message : "");
    put_optional(out, "verified_before", item.before ? catalog::time_text(*item.before) : "");
    out.member("recorded", item.recorded).key("report");
    if (item.report) {
      put(out, *item.report, each);
    } else {
      out.value(nullptr);
    }
    out.end_object();
  }
  out.end_array().end_object();
  return data;
}

int scrub_code(const ScrubReport& report) {
  bool sound = report.count(ScrubVerdict::damaged) + report.count(ScrubVerdict::incomplete) == 0;
  for (const ScrubItem& item : report.items) sound = sound && (!item.report || item.report->ok);
  const bool all =
      report.saw_all && report.count(ScrubVerdict::unread) + report.count(ScrubVerdict::busy) == 0 &&
      std::ranges::all_of(report.items, [](const ScrubItem& item) { return item.unrecorded_because.empty(); });
  return !sound ? exit_code(Errc::differs) : all ? 0 : exit_code(Errc::not_done);
}

/// For `ckpt status`.
void record_scrub(Io& io, const ScrubRequest& request, const Result<ScrubReport>& report) {
  LastRun run{.kind = LastRun::Kind::verify, .at = now(), .by = request.by};
  if (report) {
    run.exit_code = scrub_code(*report);
    run.count = report->checked();
    run.problems = report->count(ScrubVerdict::damaged) + report->count(ScrubVerdict::incomplete);
    run.bytes = report->bytes;
  } else {
    run.exit_code = exit_code(report.error().code);
  }
  record_last_run(io, join_path(request.store, ""), run);
}

Answer run_scrub(Context& context) {
  auto request = read_scrub(context.words);
  if (!request) return failed(std::move(request).error());
  const VerifyRequest each{.quick = request->quick, .finite = request->finite};
  auto report = ask_alone(context, [&](Session& session) {
    auto scrubbed = scrub(session, *request, [&](const ScrubItem& item) { print_item(context, item, each); });
    // A name without a checkpoint is a slip of the hand: it says nothing about the store.
    if (scrubbed || scrubbed.error().code != Errc::not_found) record_scrub(session.io, *request, scrubbed);
    return scrubbed;
  });
  if (!report) {
    const bool any = report.error().code != Errc::not_found;
    return failed(std::move(report).error(), any ? "results so far are recorded" : "");
  }
  Answer out;
  out.exit_code = scrub_code(*report);
  const std::vector<Finding> findings = scrub_findings(*report);
  take_warnings(out, findings);
  say(context, scrub_summary(*report, context.settings.sizes));
  if (!context.settings.quiet) {
    print_findings(context, findings);
  } else if (!report->warnings.empty()) {  // those of checkpoints were printed
    print_findings(context, std::span(findings).first(report->warnings.size()));
  }
  if (context.settings.json) out.data = scrub_data(*report, *request, each);
  return out;
}

Result<std::optional<Tolerance>> tolerance_of(const Words& words) {
  std::optional<Tolerance> out;
  for (const auto& [flag, member] : {std::pair("rtol", &Tolerance::relative), {"atol", &Tolerance::absolute}}) {
    const Value* value = words.value(flag);
    if (value == nullptr) continue;
    const auto number = parse_number<double>(value->text);
    if (!number || !std::isfinite(*number) || *number < 0)
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: '{}' is not a number of at least 0", value->origin, value->text),
                   .hint = fmt::format("--{} 1e-3", flag)});
    if (words.verb->name != "diff" && words.value("against") == nullptr)
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: nothing to compare with", value->origin),
                   .hint = fmt::format("ckpt diff A B --{} {}", flag, value->text)});
    if (!out) out.emplace();
    (*out).*member = *number;
  }
  return out;
}

/// By path or by name; `request` gets the paths.
Result<VerifyReport> verify_named(Context& context, Session& session, VerifyRequest& request) {
  CKPT_TRY(request.path, source_path(context, session, request.path));
  if (!request.against.empty()) {
    CKPT_TRY(request.against, source_path(context, session, request.against));
  }
  return verify_recorded(session, request, who(), now);
}

Answer verified(Context& context, VerifyRequest request) {
  const VerifyRequest asked = request;
  auto report = ask_alone(context, [&](Session& session) { return verify_named(context, session, request); });
  if (!report) return failed(std::move(report).error());
  Answer out;
  out.exit_code = report->ok ? 0 : exit_code(Errc::differs);
  take_warnings(out, report->notes);
  out.data = data_of(*report, request);
  if (context.settings.quiet && !report->damage.empty()) {
    const Finding trouble{.severity = Severity::warning, .text = asked.path + ": " + trouble_text(*report)};
    print_findings(context, std::span(&trouble, 1));
  }
  print_verify(context, asked.path, *report, asked);
  return out;
}

}  // namespace

Answer run_verify(Context& context) {
  if (auto checked = check_flags(context.words); !checked) return failed(std::move(checked).error());
  if (context.words.on("all")) return run_scrub(context);
  VerifyRequest request{.path = context.words.arguments[0],
                        .from = context.words.text("from"),
                        .quick = context.words.on("quick"),
                        .against = context.words.text("against"),
                        .finite = context.words.on("finite")};
  auto sample = sample_of(context.words);
  if (!sample) return failed(std::move(sample).error());
  request.sample = *sample;
  auto tolerance = tolerance_of(context.words);
  if (!tolerance) return failed(std::move(tolerance).error());
  request.tolerance = *tolerance;
  if (request.quick && (request.finite || request.sample))
    return failed(
        {.code = Errc::usage, .message = "--finite and --sample do not work with --quick, which reads no values"});
  return verified(context, request);
}

Answer run_diff(Context& context) {
  const Words& words = context.words;
  VerifyRequest request{.path = words.arguments[0],
                        .from = words.text("from"),
                        .against = words.arguments[1],
                        .only = words.all("only"),
                        .strip_prefix = words.text("strip-prefix")};
  auto tolerance = tolerance_of(words);
  if (!tolerance) return failed(std::move(tolerance).error());
  request.tolerance = *tolerance;
  return verified(context, request);
}

}  // namespace ckpt::cli
