#include "api/catalog/why.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/undelete.hpp"
#include "catalog/index/names.hpp"
#include "convert/foreign_names.hpp"

namespace ckpt {
namespace {

bool has_policy(Io& io, const PruneRequest& request) {
  const auto policies = read_policies(io, request.store, request.policy);
  return policies || policies.error().code != Errc::not_found;
}

/// RUN@latest, RUN@best, RUN@TAG: the checkpoint of that name; any other name is unchanged. `unknown`: of a name that
/// the store does not have, why.
Result<std::string> meant_by(Io& io, const PruneRequest& request, const std::string& name, Error& unknown) {
  if (catalog::find_separator(name) == std::string::npos) return name;
  auto catalog = open_catalog(io, request.store, catalog::Trust::notes, request.now);
  if (!catalog) return name;
  const auto entry = find_in_catalog(io, *catalog, name);
  // Without RUN, of several runs; or a run that cannot be read.
  if (!entry && entry.error().code != Errc::not_found) return fail(entry.error());
  if (!entry) unknown = entry.error();
  return entry && !names_checkpoint(name, entry->checkpoint.run, entry->name, entry->checkpoint.step, "")
             ? join_path(entry->checkpoint.run, entry->name)
             : name;
}

}  // namespace

Result<WhyReport> explain_checkpoint(Session& session, PruneRequest request, const std::string& asked) {
  Error unknown{.code = Errc::not_found,
                .message = asked + ": no such checkpoint",
                .hint = "use RUN@STEP, RUN@latest, RUN@best, RUN@TAG, RUN/DIRECTORY or an id prefix"};
  CKPT_TRY(const std::string name, meant_by(session.io, request, asked, unknown));
  WhyReport out;
  request.runs.clear();
  const bool decided = has_policy(session.io, request);
  if (!decided) request.policy.flags = {{"keep-last", "all"}};  // so that it is found
  CKPT_TRY(PrunePlan plan, plan_prune(session, request));
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const PrunePart& part = plan.parts[p];
    const catalog::ShortNames names(part.entries);
    for (std::size_t i = 0; i < part.entries.size(); ++i) {
      const catalog::Checkpoint& one = part.checkpoints[i];
      if (!names_checkpoint(name, one.run, part.entries[i].name, one.step, one.id)) continue;
      if (decided) {
        out.live.emplace_back(p, i);
      } else {
        catalog::Decision held{.blockers = part.retention.decisions[i].blockers};
        out.ruleless.push_back({.entry = part.entries[i],
                                .label = names.of(part.entries[i]),
                                .held = why_kept(held, one, part.checkpoints, part.policy)});
        out.ruleless.back().entry.checkpoint.superseded = part.retention.decisions[i].superseded;
      }
    }
  }
  const catalog::ShortNames names(plan.undecided);
  for (const catalog::Entry& entry : plan.undecided) {
    const catalog::Checkpoint& one = entry.checkpoint;
    if (names_checkpoint(name, one.run, entry.name, one.step, one.id)) {
      const auto nearer = plan.elsewhere.find(one.run);
      out.ruleless.push_back({.entry = entry,
                              .label = names.of(entry),
                              .held = nearer == plan.elsewhere.end()
                                          ? std::string()
                                          : "its run is governed by " + join_path(nearer->second, kPolicyFile)});
    }
  }
  CKPT_TRY(auto trash, catalog::list_trash(session.io, plan.store));
  catalog::note_shared_steps(session.io, plan.store, trash, foreign_names());
  for (const catalog::TrashEntry& entry : trash) {
    if (names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id)) out.history.push_back(entry);
  }
  std::sort(out.history.begin(), out.history.end(), [](const catalog::TrashEntry& a, const catalog::TrashEntry& b) {
    return a.record.deleted < b.record.deleted;
  });
  std::vector<std::string> runs;
  for (const auto& [p, i] : out.live) runs.push_back(plan.parts[p].checkpoints[i].run);
  for (const WhyReport::Ruleless& one : out.ruleless) runs.push_back(one.entry.checkpoint.run);
  if (!runs.empty())
    for (const catalog::Unread& one : unread_among(plan.unread, runs)) out.warnings.push_back(one.error.message);
  if (out.live.empty() && out.ruleless.empty() && out.history.empty()) {
    const std::size_t slash = name.rfind('/');
    const std::string run = name.substr(0, slash);
    CKPT_CHECK(check_seen(plan.unread, std::span(&run, slash == std::string::npos ? 0U : 1U)));  // an id may be of any
    unknown.message += fmt::format("; nor is it in the trash of {}", plan.store);
    return fail(std::move(unknown));
  }
  out.store = plan.store;
  if (decided) out.plan = std::move(plan);
  return out;
}

}  // namespace ckpt
