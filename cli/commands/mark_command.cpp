#include <fmt/format.h>

#include "api/catalog/store_catalog.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/report/catalog_text.hpp"
#include "cli/words/catalog_words.hpp"
#include "cli/words/mark_words.hpp"

namespace ckpt::cli {
namespace {

using Kind = catalog::Mark::Kind;

Result<MarksRequest> read_mark_request(const Words& words) {
  MarksRequest out{.now = now()};
  const auto remove = [&](Kind kind, std::string name) {
    out.changes.push_back({.mark = {.kind = kind, .name = std::move(name)}, .remove = true});
  };
  for (std::string& name : words.all("remove-metric")) remove(Kind::metric, std::move(name));
  for (std::string& name : words.all("remove-tag")) remove(Kind::tag, std::move(name));
  if (words.on("remove-note")) remove(Kind::note, {});
  CKPT_TRY(std::vector<catalog::Mark> marks, marks_of(words));
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
    if (mark.kind == Kind::note) out += "   note " + printable(mark.text);
  }
  return out + "\n";
}

}  // namespace

Answer run_mark(Context& context) {
  auto request = read_mark_request(context.words);
  if (!request) return failed(std::move(request).error());
  auto report = ask_alone(context, [&](Session& session) -> Result<MarkReport> {
    CKPT_TRY(NamesInStore named, names_of(session, context.words));
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
    put(data.key("checkpoint"), report->entry, request->store);
    data.end_object();
    return out;
  }
  say(context, marks_text(report->label, report->entry));
  return out;
}

}  // namespace ckpt::cli
