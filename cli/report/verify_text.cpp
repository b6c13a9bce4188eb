#include "cli/report/verify_text.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  if (report.not_finite.empty()) say(context, "  finite      no NaN, no Inf\n");
  std::vector<std::string> lines;
  for (const NotFiniteTensor& tensor : report.not_finite)
    lines.push_back(
        fmt::format("{}   {} NaN, {} Inf", tensor.name, format_count(tensor.nan), format_count(tensor.infinite)));
  print_names(context, "not finite", lines);
}

}  // namespace

std::string trouble_text(const VerifyReport& report) {
  if (!report.damage.empty()) {
    const std::size_t more = report.damage.size() - 1;
    return fmt::format("damaged: {}{}", finding_text(report.damage.front()),
                       more == 0 ? "" : fmt::format(" (and {} more)", more));
  }
  if (!report.not_finite.empty()) return format_counted(report.not_finite.size(), "tensor") + " with NaN or Inf";
  return "differs";
}

void print_verify(Context& context, std::string_view label, const VerifyReport& report, const VerifyRequest& request) {
  const SizeStyle sizes = context.settings.sizes;
  const std::string verdict = report.ok                    ? context.console.paint_out(Ink::green, "ok")
                              : !report.damage.empty()     ? context.console.paint_out(Ink::red, "DAMAGED")
                              : !report.not_finite.empty() ? context.console.paint_out(Ink::red, "NOT FINITE")
                                                           : context.console.paint_out(Ink::red, "DIFFERS");
  std::string line = fmt::format("{}   {}", printable(std::string(label)), verdict);
  if (!report.format.empty()) {  // could not be opened: nothing is known
    const std::string variant = report.variant.empty() ? "" : " " + printable(report.variant);
    line += fmt::format("   {}{} · {}{}{}", report.format, variant,
                        report.unread ? "" : format_counted(report.tensor_count, "tensor") + " · ",
                        report.bytes != 0 ? format_size(report.bytes, sizes) + " in " : "",
                        format_counted(report.file_count, "file"));
    const std::uint64_t checks = report.leaf_count + report.crc_checked;
    if (checks != 0) line += fmt::format(" · {} {}", format_counted(checks, "checksum"), report.ok ? "OK" : "compared");
    if (!report.checked_by.empty()) line += fmt::format(" ({})", report.checked_by);
    line += "   " + format_seconds(report.seconds);
    if (report.seconds > 0.05 && !request.quick)
      line += "   " + format_rate(static_cast<double>(report.bytes) / report.seconds, sizes);
  }
  say(context, line + "\n");
  for (const Finding& finding : report.damage) say(context, fmt::format("  damage      {}\n", finding_text(finding)));
  if (report.finite_checked) print_finite(context, report);
  if (!request.against.empty()) {
    say(context, fmt::format("against {}: {}, {} different, {} only here, {} only there\n", printable(request.against),
                             format_count(report.compared) + " identical", format_count(report.different.size()),
                             format_count(report.only_here.size()), format_count(report.only_there.size())));
    std::vector<std::string> different;
    for (const auto& [name, reason] : report.different) different.push_back(fmt::format("{}   {}", name, reason));
    print_names(context, "different", different);
    print_names(context, "only here", report.only_here);
    print_names(context, "only there", report.only_there);
  }
  print_findings(context, report.notes);
}

}  // namespace ckpt::cli
