#include <fmt/format.h>

#include <algorithm>

#include "api/catalog/log_metrics.hpp"
#include "api/catalog/store_catalog.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/mark_options.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::cli {
namespace {

using Kind = catalog::Mark::Kind;

/// One command cannot both set and remove a mark.
Result<> check_not_removed(const catalog::Mark& mark, const std::vector<MarkChange>& removals) {
  const bool is_removed = std::ranges::any_of(
      removals, [&](const MarkChange& other) { return other.mark.kind == mark.kind && other.mark.name == mark.name; });
  if (!is_removed) return {};
  const std::string_view kind = catalog::kind_name(mark.kind);
  return fail(Errc::usage, fmt::format("--{0}{1}{2} and --remove-{0}{1}{2} cannot be used together", kind,
                                       mark.name.empty() ? "" : " ", mark.name));
}

Result<MarksRequest> read_mark_request(const Words& words) {
  MarksRequest out{.now = now()};
  const auto remove = [&](Kind kind, std::string name) {
    out.changes.push_back({.mark = {.kind = kind, .name = std::move(name)}, .remove = true});
  };
  for (std::string& name : words.all("remove-metric")) remove(Kind::metric, std::move(name));
  for (std::string& name : words.all("remove-tag")) remove(Kind::tag, std::move(name));
  if (words.on("remove-note")) remove(Kind::note, {});
  CKPT_TRY(std::vector<catalog::Mark> marks, marks_of(words));
  for (const catalog::Mark& mark : marks) CKPT_CHECK(check_not_removed(mark, out.changes));
  for (catalog::Mark& mark : marks) out.changes.push_back({.mark = std::move(mark)});
  if (out.changes.empty())
    return fail({.code = Errc::usage,
                 .message = "nothing to record",
                 .hint = "use --metric eval_loss=1.2, --tag release or --note TEXT"});
  return out;
}

/// "llama8b@1000   eval_loss=1.2   tags release   note TEXT".
std::string marks_text(const std::string& label, const catalog::Entry& entry) {
  const catalog::Checkpoint& one = entry.checkpoint;
  std::string out = printable(label);
  std::string metrics;
  for (const auto& [name, value] : one.metrics)
    metrics += fmt::format("{}{}={:.6g}", metrics.empty() ? "" : " ", name, value);
  if (!metrics.empty()) out += "   " + printable(metrics);
  std::string tags;
  for (const std::string& tag : one.tags) tags += (tags.empty() ? "" : ", ") + tag;
  if (!tags.empty()) out += "   tags " + printable(tags);
  for (const catalog::Mark& mark : entry.marks) {
    if (mark.kind == Kind::note && mark.name.empty()) out += "   note " + printable(mark.text);
  }
  return out + "\n";
}

/// --metrics-from: the marks of a run's checkpoints, from a training log.
Answer run_log(Context& context) {
  const Words& words = context.words;
  for (const std::string_view other : {"metric", "tag", "note", "remove-metric", "remove-tag", "remove-note"}) {
    if (words.value(other) != nullptr)
      return failed(
          {.code = Errc::usage, .message = fmt::format("--metrics-from and --{} cannot be used together", other)});
  }
  LogMetricsRequest request{
      .log = words.text("metrics-from"), .only = words.all("matching"), .owner = user_name(), .now = now()};
  auto report = ask_by_name(context, [&](Session& session, NamesInStore named) -> Result<LogMetricsReport> {
    request.store = std::move(named.store);
    request.name = std::move(named.names.front());
    return record_log_metrics(session.io, request);
  });
  if (!report) return failed(std::move(report).error());
  Answer out;
  std::vector<Finding> findings;
  for (const std::string& text : report->warnings) findings.push_back({.severity = Severity::warning, .text = text});
  if (!report->without.empty())
    findings.push_back(
        {.severity = Severity::note, .text = fmt::format("no metrics logged for {}", name_list(report->without))});
  print_findings(context, findings);
  take_warnings(out, findings);
  if (context.settings.json) {
    json::Writer data = data_writer(out.data);
    data.begin_object().key("checkpoints").begin_array();
    for (const MarkReport& one : report->marked) put(data, one.entry, one.label, request.store);
    data.end_array().end_object();
    return out;
  }
  for (const MarkReport& one : report->marked) say(context, marks_text(one.label, one.entry));
  return out;
}

}  // namespace

Answer run_mark(Context& context) {
  if (context.words.value("metrics-from") != nullptr) return run_log(context);
  auto request = read_mark_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto report = ask_by_name(context, [&](Session& session, NamesInStore named) -> Result<MarkReport> {
    request->store = std::move(named.store);
    request->checkpoint = std::move(named.names.front());
    return change_marks(session.io, *request);
  });
  if (!report) return failed(std::move(report).error());
  Answer out;
  std::vector<Finding> findings;
  for (const std::string& text : report->warnings) findings.push_back({.severity = Severity::warning, .text = text});
  print_findings(context, findings);
  take_warnings(out, findings);
  if (context.settings.json) {
    json::Writer data = data_writer(out.data);
    data.begin_object();
    put(data.key("checkpoint"), report->entry, report->label, request->store);
    data.end_object();
    return out;
  }
  say(context, marks_text(report->label, report->entry));
  return out;
}

}  // namespace ckpt::cli
