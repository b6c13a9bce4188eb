#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/import.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_names.hpp"
#include "catalog/index/names.hpp"
#include "catalog/scan/utc.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/report/conversion_text.hpp"
#include "cli/report/target_text.hpp"
#include "cli/words/mark_options.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::cli {
namespace {

Error about(const Value& value, std::string reason, std::string hint = {}) {
  return {
      .code = Errc::usage, .message = fmt::format("{}: {}", value.origin, std::move(reason)), .hint = std::move(hint)};
}

Result<std::optional<std::uint64_t>> read_step(const Words& words, const std::string& flag) {
  const Value* value = words.value(flag);
  if (value == nullptr) return std::nullopt;
  const auto step = parse_number<std::uint64_t>(value->text);
  if (!step) return fail(about(*value, fmt::format("'{}' is not a number", value->text)));
  return step;
}

Result<ImportRequest> read_save_request(const Words& words) {
  ImportRequest out{.store = store_of(words), .run = words.text("run")};
  ConvertRequest& conversion = out.conversion;
  conversion.source = words.arguments[0];
  if (conversion.source.empty()) return fail(Errc::usage, "missing SRC");
  if (out.run.empty())
    return fail({.code = Errc::usage,
                 .message = "--run NAME is required",
                 .hint = "name the run that it belongs to: --run llama8b"});
  while (out.run.ends_with('/')) out.run.pop_back();
  CKPT_TRY(out.step, read_step(words, "step"));
  CKPT_TRY(out.back_to, read_step(words, "back-to"));
  CKPT_TRY(out.marks, marks_of(words));
  conversion.from = words.text("from");
  conversion.only = words.all("only");
  out.link = words.on("link");
  conversion.dry_run = words.on("dry-run");
  conversion.restart = words.on("restart");
  conversion.allow_skipped = words.on("allow-skipped");
  if (words.text("verify") == "none") conversion.verify = VerifyLevel::none;
  if (words.text("verify") == "full") conversion.verify = VerifyLevel::full;
  return out;
}

/// `is_newest`: of the saves of its step; one that exists already may have been followed by another.
std::string saved_name(const ImportReport& report, const ImportRequest& request, bool is_newest) {
  return catalog::short_name(request.run, report.step) + (is_newest ? "" : fmt::format(".g{}", report.generation));
}

std::string report_data(const ImportReport& report, const ImportRequest& request, const std::string& name) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object().key("checkpoint").begin_object();
  put_text(out, "store", request.store);
  out.member("new_store", report.new_store).member("run", request.run).member("step", report.step);
  put_optional(out, "name", report.name.empty() ? "" : name);
  put_optional(out, "directory", report.name);
  put_text(out, "path", report.conversion.target);
  out.member("generation", report.generation == 0 ? std::nullopt : std::optional(report.generation));
  out.member("series", report.series);
  put_optional(out, "created", report.created);
  out.member("linked", report.linked).member("marked_later", report.marked_later).end_object();
  put(out.key("conversion"), report.conversion, request.conversion);
  out.end_object();
  return data;
}

/// If that may be unexpected: an hour, a day or a `within` of a policy may already have passed for it.
void print_age(Context& context, const ImportReport& report) {
  const auto created = catalog::parse_time(report.created);
  if (!created || catalog::elapsed(*created, now()) < std::chrono::hours(1)) return;
  say(context,
      fmt::format("dated   {} ago: time rules count from {}, when {}\n", age_text(*created, now()),
                  catalog::time_text(*created), report.linked ? "it was saved" : "the newest file of SRC was written"));
}

void print_end(Context& context, const ImportReport& report, const ImportRequest& request, const std::string& name) {
  const ConvertReport& conversion = report.conversion;
  const SizeStyle sizes = context.settings.sizes;
  const std::string files = fmt::format("{}, {}", format_counted(conversion.files.size(), "file"),
                                        format_size(conversion.target_bytes, sizes));
  if (conversion.dry_run && !conversion.already_done) {
    if (report.linked) say(context, fmt::format("plan    link {} of the source, no copy\n", files));
    say(context, "dry run: nothing was written\n");
    return;
  }
  if (conversion.already_done) {
    say(context, already_done_text(conversion.target, conversion.id));
    if (report.marked_later) say(context, "metrics, tags, note and pin were added\n");
  } else {
    if (report.new_store) say(context, fmt::format("store   {} was created\n", printable(request.store)));
    if (conversion.resumed_bytes != 0)
      say(context,
          fmt::format("resumed {} of {} already written and verified\n", format_size(conversion.resumed_bytes, sizes),
                      format_size(conversion.target_bytes, sizes)));
    say(context, report.linked ? fmt::format("linked  {} of the source in {}, no copy\n", files,
                                             format_seconds(conversion.seconds))
                               : done_text(conversion, false, sizes));
  }
  say(context, context.settings.quiet ? printable(name) + "\n" : fmt::format("saved   {}\n", printable(name)), true);
  print_age(context, report);
  say(context, fmt::format("next: ckpt list --store {}\n", shell_path(request.store)));
}

/// By path or by name; `request` gets the path. Collective.
Result<ImportReport> import_named(Session& session, const Words& words, ImportRequest& request) {
  CKPT_TRY(request.conversion.source, path_of(session, words, request.conversion.source));
  return import_checkpoint(session, request);
}

}  // namespace

Answer run_save(Context& context) {
  auto request = read_save_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto opened = OpenSession::on_all_ranks(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;

  std::size_t findings_shown = 0;
  Result<ImportReport> report = tl::unexpected<Error>(Error{});
  if (open.failure() != nullptr) {
    report = fail(*open.failure());
  } else {
    open.session().planned = [&](const ConvertReport& planned) {
      if (planned.already_done) return;
      say_fitted(context, plan_text(planned, context.settings.sizes), 8);
      print_findings(context, planned.notes);
      findings_shown = planned.notes.size();
    };
    report = import_named(open.session(), context.words, *request);
  }
  open.end_progress();

  Error named;
  if (!report) named = name_signal(report.error());
  Verdict verdict = agree_on_verdict(open.comm(), report ? nullptr : &named);
  Answer out;
  out.exit_code = verdict.exit_code;
  out.failures = std::move(verdict.failures);
  const std::string place = request->store + "/" + request->run;
  for (Failure& failure : out.failures)
    failure.effect = effect_on(place, failure.error, request->conversion.dry_run, false);
  if (!report) return out;
  const ConvertReport& conversion = report->conversion;
  if (out.exit_code == 0 && conversion.partial) out.exit_code = exit_code(Errc::not_done);
  take_warnings(out, conversion.notes);
  const std::string newest =
      directory_of_step(open.session().io, request->store, catalog::short_name(request->run, report->step));
  const std::string name = saved_name(*report, *request, newest.empty() || newest.ends_with("/" + report->name));
  out.data = report_data(*report, *request, name);
  if (out.failures.empty()) {
    print_findings(context, std::span(conversion.notes).subspan(std::min(findings_shown, conversion.notes.size())));
    print_end(context, *report, *request, name);
  }
  return out;
}

}  // namespace ckpt::cli
