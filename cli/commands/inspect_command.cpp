#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "catalog/scan/entry.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/output/table.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::cli {
namespace {

std::string first_line(const InspectReport& report) {
  std::string out = report.format;
  if (!report.variant.empty()) out += " " + printable(report.variant);
  if (!report.chosen.empty()) out += " · " + printable(report.chosen);
  if (report.meta.step) out += fmt::format(" · step {}", *report.meta.step);
  if (report.meta.world_size) out += fmt::format(" · world {}", *report.meta.world_size);
  std::vector<std::string> degrees;
  for (const auto& [axis, degree] : report.meta.mesh)
    if (degree > 1 && axis != "zero") degrees.push_back(fmt::format("{} {}", printable(axis), degree));
  if (!degrees.empty()) out += fmt::format(" ({})", fmt::join(degrees, ", "));
  if (!report.meta.framework.empty())
    out += fmt::format(" · written by {}{}{}", printable(report.meta.framework),
                       report.meta.framework_version.empty() ? "" : " ", printable(report.meta.framework_version));
  return out + "\n";
}

std::string parts_text(const InspectReport& report, SizeStyle sizes) {
  std::size_t widest = 0;
  for (const InspectReport::Part& part : report.parts) widest = std::max(widest, text_width(part.name));
  std::string out;
  for (const InspectReport::Part& part : report.parts)
    out += fmt::format("  {:<11} {:<{}}  {:>12}  {:>9}\n", out.empty() ? "holds" : "", part.name, widest,
                       format_counted(part.tensors, part.name.starts_with("blob") ? "item" : "tensor"),
                       format_size(part.bytes, sizes));
  return out;
}

std::string alias_text(const InspectReport& report) {
  std::string out;
  constexpr std::size_t shown = 3;
  for (std::size_t i = 0; i < std::min(shown, report.aliases.size()); ++i)
    out += fmt::format("  {:<11} {} → {}\n", i == 0 ? "tied" : "", printable(report.aliases[i].name),
                       printable(report.aliases[i].target));
  if (report.aliases.size() > shown)
    out += fmt::format("  {:<11} {} more; 'ckpt ls -l' shows all\n", "", format_count(report.aliases.size() - shown));
  return out;
}

std::string extras_text(const InspectReport& report, bool all) {
  constexpr std::size_t kShown = 4;
  if (report.extras.empty()) return {};
  NameList names(all ? report.extras.size() : kShown);
  for (const std::string& name : report.extras) names.add(printable(name));
  return fmt::format("  {:<11} {}\n", "with it", names.text());
}

std::string facts_text(const InspectReport& report) {
  std::string out;
  for (const InspectReport::Fact& fact : report.facts)
    out += fmt::format("  {:<11} {}\n", printable(fact.name), printable(fact.text));
  return out;
}

/// Text that the files carry: settings of a trainer, the metadata of safetensors.
std::string user_text(const InspectReport& report) {
  constexpr std::size_t kShown = 8;
  constexpr std::size_t kColumns = 60;
  std::string out;
  std::size_t shown = 0;
  for (const auto& [key, value] : report.meta.user) {
    if (catalog::metric_in(key, value) || ++shown > kShown) continue;
    out += fmt::format("  {:<11} {} = {}\n", out.empty() ? "text" : "", shorten(printable(key), kColumns),
                       shorten(printable(value), kColumns));
  }
  if (shown > kShown) out += fmt::format("  {:<11} {} more in --json\n", "", shown - kShown);
  return out;
}

std::string state_text(const InspectReport& report, SizeStyle sizes) {
  const auto missing = std::ranges::count_if(report.findings, [](const Finding& finding) {
    return finding.severity == Severity::incomplete || finding.severity == Severity::damage;
  });
  const std::string files =
      fmt::format("{}, {}", format_counted(report.file_count, "file"), format_size(report.file_bytes, sizes));
  if (!report.is_checked) return fmt::format("  {:<11} {}\n", "files", files);
  if (report.complete) return fmt::format("  {:<11} complete: {}\n", "state", files);
  return fmt::format("  {:<11} INCOMPLETE: {} present, {} below\n", "state", files,
                     format_counted(static_cast<std::uint64_t>(missing), "finding"));
}

/// Why the checkpoint is incomplete: the error that a conversion would report.
Error incomplete(const InspectReport& report) {
  const auto first = std::ranges::find(report.findings, Severity::incomplete, &Finding::severity);
  if (first == report.findings.end()) return {.code = Errc::incomplete, .message = report.path + ": files are missing"};
  const bool is_virtual = report.referenced_files != 0;
  return {.code = Errc::incomplete,
          .message = first->text.starts_with(report.root) ? first->text : report.path + ": " + first->text,
          .file = first->file,
          .tensor = first->tensor,
          .hint = is_virtual ? "put the file back as it was, or convert its checkpoint again" : ""};
}

void print_files(Context& context, const InspectReport& report) {
  const bool tsv = context.words.on("tsv");
  Table table{.columns = {{.title = "FILE"}, {.title = tsv ? "BYTES" : "SIZE", .right = true}}};
  for (const auto& [path, bytes] : report.files) {
    const std::string name = path.empty() ? base_name(report.path) : path;  // the checkpoint is a file
    table.rows.push_back({printable(name), tsv ? std::to_string(bytes) : format_size(bytes, context.settings.sizes)});
  }
  say(context, tsv ? draw_tsv(table) : draw_aligned(table, context.console.table_width()).text, true);
}

void print_report(Context& context, const InspectReport& report) {
  const SizeStyle sizes = context.settings.sizes;
  constexpr std::size_t kLabel = 14;  // "  converts to "
  say_fitted(context, first_line(report), 2);
  std::string out;
  if (!report.is_readable) out += fmt::format("  {:<11} {}; reading it is not supported\n", "is", report.summary);
  if (!report.why.empty()) out += fmt::format("  {:<11} {}\n", "detected", printable(report.why));
  if (!report.root.empty() && report.root != report.path.substr(0, report.path.find_last_not_of('/') + 1))
    out += fmt::format("  {:<11} {}\n", "directory", printable(report.root));
  if (report.is_readable)
    out += fmt::format("  {:<11} {} in {}\n", "parameters", format_quantity(report.parameter_count),
                       format_counted(report.parameter_tensor_count, "tensor"));
  out += facts_text(report);
  out += user_text(report);
  out += parts_text(report, sizes);
  if (report.object_count != 0)
    out += fmt::format("  {:<11} {} besides the tensors ('ckpt ls --objects')\n", "objects",
                       format_counted(report.object_count, "value"));
  out += alias_text(report);
  out += extras_text(report, context.settings.verbose > 0);
  if (report.referenced_files != 0)
    out += fmt::format("  {:<11} virtual: {} of other checkpoints, {}\n", "refers to",
                       format_counted(report.referenced_files, "file"), format_size(report.referenced_bytes, sizes));
  out += state_text(report, sizes);
  if (report.is_readable)
    out += fmt::format("  {:<11} {}\n", "checks",
                       report.stores_hashes           ? "complete: a hash for every 4 MiB"
                       : report.referenced_files != 0 ? "size, time and first 64 KiB of each file that it refers to"
                       : report.stores_checksums      ? "CRC-32s; 'ckpt verify' compares them"
                                                      : "no checksums; 'ckpt verify' checks structure and copies");
  if (!report.can_become.empty()) out += fmt::format("  {:<11} {}", "converts to", fmt::join(report.can_become, " · "));
  if (!report.can_become.empty() && report.smallest_memory != 0)
    out += fmt::format("   (needs at least {} of memory)", format_size(report.smallest_memory, sizes));
  if (!report.can_become.empty()) out += "\n";
  say_fitted(context, out, kLabel);
  print_findings(context, report.findings);
  if (context.words.on("files") || context.settings.verbose > 0) print_files(context, report);
  if (!report.hint.empty()) say(context, fmt::format("hint: {}\n", report.hint));
  if (!report.complete || report.can_become.empty()) return;
  const auto formats = known_formats();
  const auto format = std::ranges::find(formats, report.format, &FormatInfo::name);
  const bool portable = format != formats.end() && format->writable && !format->for_trainers;
  const std::string from = context.words.text("from");
  const std::string forced = from.empty() ? "" : " --from " + from;
  say(context,
      portable || report.parameter_tensor_count == 0
          ? fmt::format("next: ckpt ls {}{}\n", shell_path(report.path), forced)
          : fmt::format("next: ckpt convert {}{} model.safetensors --only weights\n", shell_path(report.path), forced));
}

}  // namespace

Answer run_inspect(Context& context) {
  const std::string& word = context.words.arguments[0];
  if (word.empty()) return failed({.code = Errc::usage, .message = "missing PATH"});
  auto report = ask_alone(context, [&](Session& session) -> Result<InspectReport> {
    CKPT_TRY(const std::string path, source_path(context, session, word));
    return inspect(session, path, context.words.text("from"));
  });
  if (!report) return failed(std::move(report).error());
  Answer out;
  if (!report->complete) out = failed(incomplete(*report));
  take_warnings(out, report->findings);
  out.data = data_of(*report, context.words.on("files"));
  if (context.words.on("tsv"))
    print_files(context, *report);
  else
    print_report(context, *report);
  return out;
}

}  // namespace ckpt::cli
