#include <fmt/format.h>

#include "api/catalog/undelete.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/words/catalog_words.hpp"

namespace ckpt::cli {

Answer run_undelete(Context& context) {
  const Words& words = context.words;
  UndeleteRequest request{.store = store_of(words), .names = words.arguments, .now = now(), .by = who()};
  auto timeout = lock_timeout_of(words);
  if (!timeout) return failed(std::move(timeout).error());
  request.lock_timeout = *timeout;
  auto report = ask_alone(context, [&](Session& session) { return undelete(session.io, request); });
  if (!report) return failed(std::move(report).error());

  Answer out;
  std::vector<Finding> findings;
  json::Writer data = data_writer(out.data);
  data.begin_object().key("restored").begin_array();
  for (const catalog::TrashEntry& entry : report->restored) {
    data.begin_object();
    put_text(data, "run", entry.run);
    put_text(data, "name", entry.name);
    data.member("step", entry.record.step).member("dropped", entry.record.dropped).end_object();
    say(context, fmt::format("restored {}{}/{}\n", entry.record.dropped.empty() ? "" : "the optimizer of ",
                             printable(entry.run), printable(entry.name)));
  }
  data.end_array().key("in_place").begin_array();
  for (const catalog::TrashEntry& entry : report->in_place) {
    data.begin_object();
    put_text(data, "run", entry.run);
    put_text(data, "name", entry.name);
    data.member("step", entry.record.step).end_object();
    say(context, fmt::format("in place {}/{}: not in the trash\n", printable(entry.run), printable(entry.name)));
  }
  if (!report->restored.empty()) say(context, "note    the next prune may delete them again; a pin keeps them\n");
  data.end_array().key("refused").begin_array();
  for (const auto& [name, reason] : report->refused) {
    data.begin_object();
    put_text(data, "name", name);
    put_text(data, "because", reason);
    data.end_object();
    findings.push_back({.severity = Severity::warning, .text = fmt::format("{}: not restored: {}", name, reason)});
  }
  data.end_array().end_object();
  print_findings(context, findings);
  take_warnings(out, findings);
  if (!findings.empty()) out.exit_code = exit_code(Errc::not_done);
  return out;
}

}  // namespace ckpt::cli
