#include <fmt/format.h>

#include "api/catalog/undelete.hpp"
#include "cli/commands/commands.hpp"
#include "cli/process/session.hpp"
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
  out.data = {{"restored", Json::array()}, {"in_place", Json::array()}, {"refused", Json::array()}};
  for (const catalog::TrashEntry& entry : report->restored) {
    Json one;
    put_text(one, "run", entry.run);
    put_text(one, "name", entry.name);
    one["step"] = entry.record.step;
    one["dropped"] = entry.record.dropped;
    out.data["restored"].push_back(std::move(one));
    say(context, fmt::format("restored {}{}/{}\n", entry.record.dropped.empty() ? "" : "the optimizer of ",
                             printable(entry.run), printable(entry.name)));
  }
  for (const catalog::TrashEntry& entry : report->in_place) {
    Json one;
    put_text(one, "run", entry.run);
    put_text(one, "name", entry.name);
    one["step"] = entry.record.step;
    out.data["in_place"].push_back(std::move(one));
    say(context, fmt::format("in place {}/{}: not in the trash\n", printable(entry.run), printable(entry.name)));
  }
  if (!report->restored.empty()) say(context, "note    the next prune decides about them again; a pin keeps them\n");
  for (const auto& [name, reason] : report->refused) {
    Json one;
    put_text(one, "name", name);
    put_text(one, "because", reason);
    out.data["refused"].push_back(std::move(one));
    findings.push_back({.severity = Severity::warning, .text = fmt::format("{}: not restored: {}", name, reason)});
  }
  print_findings(context, findings);
  take_warnings(out, findings);
  if (!findings.empty()) out.exit_code = exit_code(Errc::not_done);
  return out;
}

}  // namespace ckpt::cli
