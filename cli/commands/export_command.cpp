#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/target_text.hpp"
#include "format/text/nearest.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kTensorsShown = 10;

Result<LoadRequest> read_load_request(const Words& words) {
  LoadRequest out;
  out.source = words.arguments[0];
  out.target = words.arguments[1];
  if (out.source.empty() || out.target.empty())
    return fail(Errc::usage, fmt::format("missing {}", out.source.empty() ? "source" : "target"));
  if (out.target == "-")
    return fail({.code = Errc::usage,
                 .message = "cannot write tensors to standard output",
                 .hint = "name a file or a directory ('./-' for a file called '-')"});
  out.to = words.text("to");
  out.from = words.text("from");
  out.only = words.all("only");
  out.slices = words.all("slice");
  out.dry_run = words.on("dry-run");
  out.overwrite = words.on("overwrite");
  if (words.text("verify") == "none") out.verify = VerifyLevel::none;
  if (words.text("verify") == "full") out.verify = VerifyLevel::full;
  return out;
}

/// The existing name that the user probably meant.
Error with_nearest_name(Error error, Session& session, const LoadRequest& request) {
  if (error.code != Errc::not_found || error.tensor.empty() || !error.hint.empty()) return error;
  const auto listed = list_tensors(session, request.source, request.from);
  if (listed) {
    std::vector<std::string> names;
    for (const ListedTensor& tensor : listed->tensors) names.push_back(tensor.name);
    if (const auto near = nearest(error.tensor, names))
      return with_hint(std::move(error), fmt::format("did you mean '{}'?", printable(*near)));
  }
  return with_hint(std::move(error), fmt::format("'ckpt ls {}' lists the tensors", shell_path(request.source)));
}

void print_load_report(Context& context, const LoadReport& report, const LoadRequest& request) {
  const SizeStyle sizes = context.settings.sizes;
  const ConvertReport& conversion = report.conversion;
  print_findings(context, conversion.notes);
  if (conversion.already_done) {
    say(context, already_done_text(request.target, conversion.id));
    return;
  }
  const std::size_t count = report.tensors.size();
  const std::size_t shown = context.settings.verbose > 0 ? count : std::min(count, kTensorsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const LoadedTensor& tensor = report.tensors[i];
    say(context, fmt::format("tensor  {}{}   {} [{}]{}\n", printable(tensor.name), printable(tensor.slice),
                             tensor.dtype, fmt::join(tensor.shape, ", "),
                             tensor.file.empty() ? "" : fmt::format("   {}", printable(tensor.file))));
  }
  if (shown < count) say(context, fmt::format("tensor  {} more; -v shows all\n", format_count(count - shown)));
  say(context, replaced_text(conversion, conversion.dry_run || context.settings.verbose > 0, sizes));
  if (conversion.dry_run) {
    say(context, fmt::format("dry run: would write {}\n", format_size(conversion.target_bytes, sizes)));
    return;
  }
  say(context, fmt::format("done    {}, {} in {}: {}\n", format_counted(conversion.files.size(), "file"),
                           format_size(conversion.target_bytes, sizes), format_seconds(conversion.seconds),
                           printable(request.target)));
}

}  // namespace

Answer run_export(Context& context) {
  auto request = read_load_request(context.words);
  if (!request) return failed(request.error());
  auto opened = OpenSession::alone(context);
  if (!opened) return failed(std::move(opened).error());
  OpenSession& open = **opened;
  if (open.failure() != nullptr) return failed(*open.failure());
  auto source = source_path(context, open.session(), request->source);
  if (!source) return failed(std::move(source).error());
  request->source = *std::move(source);
  const auto report = load(open.session(), *request);
  open.end_progress();
  if (!report) {
    const Error error = with_nearest_name(name_signal(report.error()), open.session(), *request);
    return failed(error, effect_on(request->target, error, request->dry_run, request->overwrite));
  }
  Answer out;
  if (report->conversion.partial) out.exit_code = exit_code(Errc::not_done);
  take_warnings(out, report->conversion.notes);
  out.data = data_of(*report, *request);
  print_load_report(context, *report, *request);
  return out;
}

}  // namespace ckpt::cli
