#include "cli/report/verify_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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

std::string difference_text(const VerifyReport::Difference& one) {
  if (!one.values) return fmt::format("{}   {}", one.name, one.reason);
  const ValueDifference& values = *one.values;
  std::string out = fmt::format("{}   ", one.name);
  if (one.reason != "values") out += one.reason + "; ";
  out += fmt::format("{} of {} values differ", format_count(values.differing), format_count(values.elements));
  if (values.max_absolute != 0)
    out += fmt::format(", max |a-b| {:.2g}, relative {:.2g}", values.max_absolute, values.max_relative);
  if (values.one_is_nan != 0) out += fmt::format(", {} NaN on one side", format_count(values.one_is_nan));
  return out;
}

/// The sum over all tensors, then each; those that differ most come first.
void print_differences(Context& context, const VerifyReport& report) {
  std::vector<VerifyReport::Difference> all = report.different;
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) {
    const auto size = [](const VerifyReport::Difference& one) {
      return one.values ? one.values->max_relative : std::numeric_limits<double>::infinity();
    };
    return size(a) > size(b);
  });
  ValueDifference sum;
  for (const VerifyReport::Difference& one : all) {
    if (!one.values) continue;
    sum.elements += one.values->elements;
    sum.differing += one.values->differing;
    sum.max_absolute = std::max(sum.max_absolute, one.values->max_absolute);
    sum.max_relative = std::max(sum.max_relative, one.values->max_relative);
  }
  if (sum.elements != 0)
    say(context,
        fmt::format("  values      {} of {} differ in these tensors, max |a-b| {:.2g}, relative {:.2g}\n",
                    format_count(sum.differing), format_count(sum.elements), sum.max_absolute, sum.max_relative));
  std::vector<std::string> lines;
  for (const VerifyReport::Difference& one : all) lines.push_back(difference_text(one));
  print_names(context, "different", lines);
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
    print_differences(context, report);
    print_names(context, "only here", report.only_here);
    print_names(context, "only there", report.only_there);
  }
  print_findings(context, report.notes);
}

}  // namespace ckpt::cli
