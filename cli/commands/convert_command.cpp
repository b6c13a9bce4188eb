#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/conversion_text.hpp"
#include "cli/report/target_text.hpp"
#include "cli/words/flag_values.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

std::optional<Dtype> dtype_of(const std::string& word) {
  if (word == "bf16") return Dtype::bf16;
  if (word == "fp16") return Dtype::f16;
  if (word == "fp32") return Dtype::f32;
  return std::nullopt;  // "keep"
}

/// Options of single target formats. Whether the target takes them is the conversion's business.
Result<TargetOptions> read_target_options(const Words& words) {
  constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 20;
  const auto ranks = [](std::string_view text) { return parse_count(text, 1, kMostRanks); };
  TargetOptions out;
  if (const Value* value = words.value("zero-stage")) out.zero_stage = value->text.front() - '0';  // one of the choices
  CKPT_CHECK(read_flag(words, "dp", out.dp, ranks));
  CKPT_CHECK(read_flag(words, "ep", out.ep, ranks));
  CKPT_CHECK(read_flag(words, "etp", out.etp, ranks));
  CKPT_CHECK(read_flag(words, "tp", out.tp, ranks));
  CKPT_CHECK(read_flag(words, "pp", out.pp, ranks));
  CKPT_CHECK(read_flag(words, "vpp", out.vpp, ranks));
  const auto layers = [](std::string_view text) { return parse_count(text, 0, kMostRanks); };
  CKPT_CHECK(read_flag(words, "decoder-first", out.decoder_first, layers));
  CKPT_CHECK(read_flag(words, "decoder-last", out.decoder_last, layers));
  CKPT_CHECK(read_flag(words, "ranks", out.ranks, ranks));
  if (const Value* value = words.value("tag")) {
    out.tag = value->text;
    if (out.tag.empty() || out.tag == "." || out.tag == ".." || out.tag.find('/') != std::string::npos)
      return fail(
          {.code = Errc::usage, .message = fmt::format("{}: '{}' is not a directory name", value->origin, out.tag)});
  }
  out.fresh_optimizer = words.on("fresh-optimizer");
  for (const std::string& text : words.all("placement")) {
    const auto equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return fail({.code = Errc::usage,
                   .message = fmt::format("--placement: '{}' is not NAME=PLACEMENTS", text),
                   .hint = "write a pattern of tensor names and one placement per mesh dimension, e.g. "
                           "'--placement layers.*.weight=S0,R'"});
    out.placements.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Result<ConvertRequest> read_request(const Words& words) {
  ConvertRequest out;
  out.source = words.arguments[0];
  out.materialize = words.verb != nullptr && words.verb->name == "materialize";
  const bool in_place = out.materialize && words.arguments.size() == 1;
  out.target = in_place ? out.source : words.arguments[1];
  if (out.source.empty() || out.target.empty())
    return fail(Errc::usage, fmt::format("missing {}", out.source.empty() ? "source" : "target"));
  if (out.target.find("://") != std::string::npos)
    return fail({.code = Errc::unsupported,
                 .message = out.target + ": cannot write to a URL",
                 .hint = "write to a local or mounted path, then copy it"});
  if (out.target == "-")
    return fail({.code = Errc::usage,
                 .message = "cannot write a checkpoint to standard output",
                 .hint = "name a file or a directory ('./-' for a file called '-')"});
  out.to = out.materialize ? "ckpt" : words.text("to");
  out.from = out.materialize ? "ckpt" : words.text("from");
  out.only = words.all("only");
  if (words.text("weights") == "master") out.weights = WeightsFrom::master;
  if (words.text("weights") == "param") out.weights = WeightsFrom::param;
  out.dtype = dtype_of(words.text("dtype"));
  if (const Value* value = words.value("shard-size")) {
    const auto bytes = parse_size(value->text);
    if (!bytes || *bytes == 0)
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: {}", value->origin, bytes ? "must not be 0" : bytes.error().message),
                   .hint = bytes ? "" : bytes.error().hint});
    out.shard_bytes = *bytes;
  }
  CKPT_TRY(out.options, read_target_options(words));
  out.strip_prefix = words.text("strip-prefix");
  out.add_prefix = words.text("add-prefix");
  out.extras = !words.on("no-extras");
  out.assets = words.text("assets");
  if (!out.extras && !out.assets.empty()) return fail(Errc::usage, "--assets and --no-extras contradict each other");
  out.dry_run = words.on("dry-run");
  out.overwrite = words.on("overwrite");
  out.restart = words.on("restart");
  out.by_reference = words.on("virtual");
  out.allow_skipped = words.on("allow-skipped");
  if (words.text("verify") == "none") out.verify = VerifyLevel::none;
  if (words.text("verify") == "full") out.verify = VerifyLevel::full;
  return out;
}

/// A command that will succeed: the target's own checksums, or the source where nothing was selected or changed.
std::string next_text(const ConvertReport& report, const ConvertRequest& request, const Words& words) {
  const auto formats = known_formats();
  const auto target = std::ranges::find(formats, report.target_format, &FormatInfo::name);
  if (target == formats.end() || !target->readable) return {};
  const std::string path = shell_path(request.target);
  if (report.target_format == "ckpt") return fmt::format("next: ckpt verify {}\n", path);
  const bool same = request.only.empty() && !request.dtype && request.weights == WeightsFrom::automatic &&
                    request.strip_prefix.empty() && request.add_prefix.empty() && !report.names_state &&
                    (!target->for_trainers || report.source_format == report.target_format);  // else names differ
  // Padding and settings from elsewhere are not the source's.
  const bool is_more =
      words.value("names") != nullptr && (words.value("vocab-multiple") != nullptr || !request.assets.empty());
  if (!same || is_more) return fmt::format("next: ckpt inspect {}\n", path);
  std::string facts;
  for (const std::string option : {"map", "names", "vocab-size"}) {
    if (words.value(option) != nullptr) facts += fmt::format(" --{} {}", option, shell_path(words.text(option)));
  }
  return fmt::format("next: ckpt diff {} {}{}\n", path, shell_path(request.source), facts);
}

void print_end(Context& context, const ConvertReport& report, const ConvertRequest& request) {
  const SizeStyle sizes = context.settings.sizes;
  if (report.already_done) {
    say(context, already_done_text(request.target, report.id));
    say(context, next_text(report, request, context.words));
    return;
  }
  if (report.dry_run) {
    say(context, "dry run: nothing was written\n");
    return;
  }
  if (report.resumed_bytes != 0)
    say(context, fmt::format("resumed {} of {} already written and verified\n",
                             format_size(report.resumed_bytes, sizes), format_size(report.target_bytes, sizes)));
  say(context, done_text(report, request.dtype.has_value(), sizes));
  if (context.settings.verbose > 0)
    say(context,
        fmt::format("engine  {}{} · {} · read {} from the source · planned memory {} · id {}\n", report.io_name,
                    report.direct ? "" : " through the page cache", report.page_kind,
                    format_size(report.read_bytes, sizes), format_size(report.planned_memory, sizes), report.id));
  if (context.settings.verbose > 1)
    for (const auto& [path, bytes] : report.files)
      say(context, fmt::format("file    {}  {}\n", printable(path.empty() ? base_name(report.target) : path),
                               format_size(bytes, sizes)));
  say(context, next_text(report, request, context.words));
}

/// Where a link leads, so that the checkpoint is replaced and not the link.
std::string in_place_target(const std::string& source) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(source, error);
  return !error && std::filesystem::is_symlink(source, error) ? real.string() : source;
}

/// The target's directory must exist; the error says how to create it.
Error with_parent_hint(Error error, const ConvertRequest& request) {
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::path(request.target).lexically_normal().parent_path();
  if (error.code != Errc::not_found || parent.empty() || std::filesystem::exists(parent, ignored)) return error;
  if (!std::filesystem::exists(request.source, ignored)) return error;
  for (std::filesystem::path above = parent; !above.empty() && above != above.parent_path();
       above = above.parent_path())
    if (std::filesystem::is_regular_file(above, ignored))
      return with_hint(std::move(error), above.string() + " is a file: choose another path for the target");
  return with_hint(std::move(error), "mkdir -p " + shell_path(parent.string()));
}

/// By path or by name; `request` gets the path. Collective.
Result<ConvertReport> convert_named(Context& context, Session& session, ConvertRequest& request) {
  const Words& words = context.words;
  if (request.materialize) {
    CKPT_TRY(request.source, path_of(session, words, request.source));
  } else {
    CKPT_TRY(request.source, source_path(context, session, request.source));
  }
  if (words.arguments.size() == 1) request.target = in_place_target(request.source);
  return convert(session, request);
}

}  // namespace

Answer run_convert(Context& context) {
  auto request = read_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto opened = OpenSession::on_all_ranks(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;

  bool plan_shown = false;
  std::size_t findings_shown = 0;
  const auto show_plan = [&](const ConvertReport& report) {
    if (plan_shown || report.already_done) return;
    plan_shown = true;
    say_fitted(context, plan_text(report, context.settings.sizes), 8);
    say(context, replaced_text(report, report.dry_run || context.settings.verbose > 0, context.settings.sizes));
    print_findings(context, report.notes);
    findings_shown = report.notes.size();
  };
  Result<ConvertReport> report = tl::unexpected<Error>(Error{});
  if (open.failure() != nullptr) {
    report = fail(*open.failure());
  } else {
    open.session().planned = show_plan;
    report = convert_named(context, open.session(), *request);
  }
  open.end_progress();

  Error named;
  if (!report) named = with_parent_hint(name_signal(report.error()), *request);
  Verdict verdict = agree_on_verdict(open.comm(), report ? nullptr : &named);
  Answer out;
  out.exit_code = verdict.exit_code;
  out.failures = std::move(verdict.failures);
  for (Failure& failure : out.failures)
    failure.effect = effect_on(request->target, failure.error, request->dry_run,
                               request->overwrite || context.words.arguments.size() == 1);
  if (!report) return out;
  if (out.exit_code == 0 && report->partial) out.exit_code = exit_code(Errc::not_done);
  take_warnings(out, report->notes);
  out.data = data_of(*report, *request);
  if (out.failures.empty()) {
    show_plan(*report);
    print_findings(context, std::span(report->notes).subspan(std::min(findings_shown, report->notes.size())));
    print_end(context, *report, *request);
  }
  return out;
}

}  // namespace ckpt::cli
