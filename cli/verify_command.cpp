#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/session.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kNamesShown = 10;

void print_names(Context& context, std::string_view label, const std::vector<std::string>& names) {
  const std::size_t shown = context.settings.verbose > 0 ? names.size() : std::min(names.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i) say(context, fmt::format("  {:<11} {}\n", label, printable(names[i])));
  if (shown < names.size())
    say(context, fmt::format("  {:<11} {} more; -v shows all\n", label, format_count(names.size() - shown)));
}

void print_finite(Context& context, const VerifyReport& report) {
  if (report.not_finite.empty()) say(context, "  finite      no NaN, nothing infinite\n");
  std::vector<std::string> lines;
  for (const NotFiniteTensor& tensor : report.not_finite)
    lines.push_back(
        fmt::format("{}   {} NaN, {} infinite", tensor.name, format_count(tensor.nan), format_count(tensor.infinite)));
  print_names(context, "not finite", lines);
}

/// --sample and --seed.
Result<std::optional<Sample>> sample_of(const Words& words) {
  const Value* share = words.value("sample");
  Sample out;
  if (const Value* seed = words.value("seed"); seed != nullptr) {
    if (share == nullptr) return fail(Errc::usage, "--seed: chooses what --sample looks at; give --sample too");
    CKPT_TRY(out.seed, parse_count(seed->text, 0, ~std::uint64_t{0}));
  }
  if (share == nullptr) return std::nullopt;
  if (!share->text.ends_with('%'))
    return fail(Errc::usage, share->origin + ": '" + share->text + "' is not a share; write a percentage such as 5%");
  constexpr std::uint64_t whole = 1'000'000'000;
  CKPT_TRY(const std::uint64_t parts, parse_share(share->text, whole));
  out.share = static_cast<double>(parts) / static_cast<double>(whole);
  return out;
}

void print_report(Context& context, const VerifyReport& report, const VerifyRequest& request) {
  const SizeStyle sizes = context.settings.sizes;
  const std::string verdict = report.ok                    ? context.console.paint_out(Ink::green, "ok")
                              : !report.damage.empty()     ? context.console.paint_out(Ink::red, "DAMAGED")
                              : !report.not_finite.empty() ? context.console.paint_out(Ink::red, "NOT FINITE")
                                                           : context.console.paint_out(Ink::red, "DIFFERS");
  std::string line = fmt::format("{}   {}", printable(request.path), verdict);
  if (!report.format.empty()) {  // nothing is known of what could not be opened
    const std::string variant = report.variant.empty() ? "" : " " + printable(report.variant);
    line += fmt::format("   {}{} · {} · {}{}", report.format, variant, format_counted(report.tensor_count, "tensor"),
                        report.bytes != 0 ? format_size(report.bytes, sizes) + " in " : "",
                        format_counted(report.file_count, "file"));
    const std::uint64_t checks = report.leaf_count + report.crc_checked;
    if (checks != 0)
      line += fmt::format(" · {} {}", format_counted(checks, "checksum"), report.ok ? "right" : "compared");
    if (!report.checked_by.empty()) line += fmt::format(" ({})", report.checked_by);
    line += "   " + format_seconds(report.seconds);
    if (report.seconds > 0.05 && !request.quick)
      line += "   " + format_rate(static_cast<double>(report.bytes) / report.seconds, sizes);
  }
  say(context, line + "\n");
  for (const Finding& finding : report.damage) say(context, fmt::format("  damage      {}\n", finding_text(finding)));
  if (report.finite_checked) print_finite(context, report);
  if (!request.against.empty()) {
    say(context, fmt::format("against {}: {} bit for bit, {} different, {} only here, {} only there\n",
                             printable(request.against), format_count(report.compared) + " equal",
                             format_count(report.different.size()), format_count(report.only_here.size()),
                             format_count(report.only_there.size())));
    std::vector<std::string> different;
    for (const auto& [name, reason] : report.different) different.push_back(fmt::format("{}   {}", name, reason));
    print_names(context, "different", different);
    print_names(context, "only here", report.only_here);
    print_names(context, "only there", report.only_there);
  }
  print_findings(context, report.notes);
}

}  // namespace

Answer run_verify(Context& context) {
  VerifyRequest request{.path = context.words.arguments[0],
                        .from = context.words.text("from"),
                        .quick = context.words.on("quick"),
                        .against = context.words.text("against"),
                        .finite = context.words.on("finite")};
  auto sample = sample_of(context.words);
  if (!sample) return failed(std::move(sample).error());
  request.sample = *sample;
  if (request.quick && (request.finite || request.sample))
    return failed(
        {.code = Errc::usage, .message = "--quick reads no values: --finite and --sample have nothing to look at"});
  if (request.path.empty()) return failed({.code = Errc::usage, .message = "the path is empty"});
  auto opened = OpenSession::alone(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;
  if (open.failure() != nullptr) return failed(*open.failure());
  auto report = verify(open.session(), request);
  open.end_progress();
  if (!report) return failed(name_signal(std::move(report).error()));
  Answer out;
  out.exit_code = report->ok ? 0 : exit_code(Errc::differs);
  take_warnings(out, report->notes);
  out.data = to_json(*report, request);
  print_report(context, *report, request);
  return out;
}

}  // namespace ckpt::cli
