#include "cli/report/verify_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ckpt::cli {
namespace {

constexpr std::size_t kNamesShown = 10;
constexpr std::size_t kLabel = 14;  // "  only there  "

bool is_digits(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
}

/// Parts of a name that are numbers, as of layers and experts, become "*".
std::string without_numbers(std::string_view name) {
  std::string out;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    out += is_digits(part) ? "*" : part;
    if (end < name.size()) out += '.';
    begin = end + 1;
  }
  return out;
}

void print_names(Context& context, std::string_view label, const std::vector<std::string>& names) {
  const std::size_t shown = context.settings.verbose > 0 ? names.size() : std::min(names.size(), kNamesShown);
  for (std::size_t i = 0; i < shown; ++i)
    say_fitted(context, fmt::format("  {:<11} {}\n", label, printable(names[i])), kLabel);
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

/// Two digits, but "100", not "1e+02".
std::string short_number(double value) {
  const bool is_whole = value >= 100 && value < 1e6;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.2g}", value);
}

/// ", max |a-b| 0.5, ..."; empty for values that have no distance.
std::string distance_text(const ValueDifference& values) {
  if (values.max_absolute == 0) return {};
  return fmt::format(", max |a-b| {}, relative {}, relative norm {}", short_number(values.max_absolute),
                     short_number(values.max_relative), short_number(values.norm()));
}

/// "13", "3.12": the parts of a name that are numbers.
std::string numbers_of(std::string_view name) {
  std::string out;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (is_digits(name.substr(begin, end - begin)))
      out += (out.empty() ? "" : ".") + std::string(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// The same tensor of one or more layers: "layers.*.attn.q.weight".
struct DifferenceGroup {
  std::vector<const VerifyReport::Difference*> tensors{};  ///< those that differ most come first
  std::optional<ValueDifference> values{};                 ///< of all together
};

double size_of(const std::optional<ValueDifference>& values) {
  return values ? values->norm() : std::numeric_limits<double>::infinity();
}

/// Those that differ most come first. All of a group differ for one reason.
std::vector<DifferenceGroup> grouped(const std::vector<VerifyReport::Difference>& all, bool by_layer) {
  std::map<std::pair<std::string, std::string>, DifferenceGroup> groups;
  for (const VerifyReport::Difference& one : all) {
    DifferenceGroup& group = groups[{by_layer ? without_numbers(one.name) : one.name, one.reason}];
    group.tensors.push_back(&one);
    if (!one.values) continue;
    if (!group.values) group.values.emplace();
    group.values->add(*one.values);
  }
  std::vector<DifferenceGroup> out;
  for (auto& [key, group] : groups) out.push_back(std::move(group));
  for (DifferenceGroup& group : out)
    std::ranges::stable_sort(group.tensors, std::greater(), [](const auto* one) { return size_of(one->values); });
  std::ranges::stable_sort(out, std::greater(), [](const DifferenceGroup& group) { return size_of(group.values); });
  return out;
}

std::string difference_text(const DifferenceGroup& group) {
  const VerifyReport::Difference& most = *group.tensors.front();
  const bool several = group.tensors.size() > 1;
  std::string out = most.name;
  if (several) out = fmt::format("{} ({})", without_numbers(most.name), format_counted(group.tensors.size(), "tensor"));
  if (!group.values) return fmt::format("{}   {}", out, most.reason);
  const ValueDifference& values = *group.values;
  out += "   ";
  if (most.reason != "values") out += most.reason + "; ";
  if (values.differing == 0) return out + "all values are equal";
  out += fmt::format("{} of {} values differ", format_count(values.differing), format_count(values.elements));
  out += distance_text(values);
  if (values.one_is_nan != 0) out += fmt::format(", {} NaN on one side", format_count(values.one_is_nan));
  if (several && size_of(most.values) != size_of(group.tensors.back()->values))
    out += fmt::format("; most in {}", numbers_of(most.name));
  return out;
}

/// The sum over all tensors, then each, or those of all layers together if there are many.
void print_differences(Context& context, const VerifyReport& report) {
  ValueDifference sum;
  for (const VerifyReport::Difference& one : report.different)
    if (one.values) sum.add(*one.values);
  if (sum.elements != 0)
    say(context, fmt::format("  values      {} of {} differ in these tensors{}\n", format_count(sum.differing),
                             format_count(sum.elements), distance_text(sum)));
  const bool by_layer = report.different.size() > kNamesShown && context.settings.verbose == 0;
  std::vector<std::string> lines;
  for (const DifferenceGroup& group : grouped(report.different, by_layer)) lines.push_back(difference_text(group));
  print_names(context, "different", lines);
}

/// Names that one side lacks: those of all layers together if there are many.
void print_missing(Context& context, std::string_view label, const std::vector<std::string>& names) {
  if (names.size() <= kNamesShown || context.settings.verbose > 0) return print_names(context, label, names);
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  std::unordered_map<std::string, std::size_t> known;
  for (const std::string& name : names) {
    const auto [at, is_new] = known.emplace(without_numbers(name), groups.size());
    if (is_new) groups.push_back({at->first, {}});
    groups[at->second].second.push_back(name);
  }
  std::vector<std::string> lines;
  for (const auto& [folded, all] : groups)
    lines.push_back(all.size() == 1 ? all.front()
                                    : fmt::format("{} ({})", folded, format_counted(all.size(), "tensor")));
  print_names(context, label, lines);
}

/// By what it was checked. Of many checkpoints in a row only with -v; and `diff` is not about it.
void print_checks(Context& context, const VerifyReport& report) {
  const bool is_one_of_many = context.words.on("all") && report.damage.empty() && context.settings.verbose == 0;
  if (report.checked_by.empty() || is_one_of_many || context.words.verb->name == "diff") return;
  const std::uint64_t checks = report.leaf_count + report.crc_checked;
  const std::string count = fmt::format("{} {}", format_counted(checks, "checksum"), report.ok ? "OK" : "compared");
  say_fitted(context,
             checks == 0 ? fmt::format("  checked     {}\n", report.checked_by)
                         : fmt::format("  checked     {} ({})\n", count, report.checked_by),
             kLabel);
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
    line += "   " + format_seconds(report.seconds);
    if (report.bytes >= kLeastRated && !request.quick && context.words.verb->name != "diff")
      line += "   " + format_rate(static_cast<double>(report.bytes) / report.seconds, sizes);
  }
  say(context, line + "\n");
  print_checks(context, report);
  for (const Finding& finding : report.damage)
    say_fitted(context, fmt::format("  damage      {}\n", finding_text(finding)), kLabel);
  if (report.finite_checked) print_finite(context, report);
  if (!request.against.empty()) {
    const std::string within =
        request.tolerance ? fmt::format("{} within the tolerance, ", format_count(report.within)) : "";
    say(context, fmt::format("against {}: {} identical, {}{} different, {} only here, {} only there\n",
                             printable(request.against), format_count(report.compared), within,
                             format_count(report.different.size()), format_count(report.only_here.size()),
                             format_count(report.only_there.size())));
    print_differences(context, report);
    print_missing(context, "only here", report.only_here);
    print_missing(context, "only there", report.only_there);
  }
  print_findings(context, report.notes);
}

}  // namespace ckpt::cli
