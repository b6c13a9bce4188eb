#include "api/catalog/next_save.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "api/catalog/named_checkpoint.hpp"
#include "api/catalog/store_catalog.hpp"
#include "api/catalog/store_place.hpp"
#include "api/prune_policies.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/policy_toml.hpp"
#include "engine/io/replace_file.hpp"

namespace ckpt {
namespace {

constexpr double kEndlessS = 1e15;  // so long ago that every time rule asks for a save
constexpr double kLongestS = 1e11;  // an upper limit of plans: 3000 years

/// The newest save that the job may have resumed from.
const catalog::Entry* last_save(const std::vector<catalog::Entry>& entries, std::optional<std::uint64_t> step) {
  const catalog::Entry* out = nullptr;
  for (const catalog::Entry& entry : entries) {
    const catalog::Checkpoint& one = entry.checkpoint;
    const bool whole = one.state == catalog::State::committed || one.state == catalog::State::verified;
    if (!whole || (step && one.step > *step)) continue;
    if (out == nullptr || committed_before(out->checkpoint, one)) out = &entry;
  }
  return out;
}

Result<> find_rules(Io& io, const NextSaveRequest& request, NextSaveReport& out) {
  out.source = "the command line";
  if (request.rules) {
    out.rules = *request.rules;
  } else {
    CKPT_TRY(auto rules, read_store_interval(io, request.store, request.run));
    if (!rules) {
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: no rule says when to save", request.store),
                   .hint = "add [interval] to STORE/ckpt.toml, or an option such as --every 30m"});
    }
    out.rules = *rules;
    out.source = "ckpt.toml";
  }
  if (request.mtbf_s) out.rules.mtbf_s = *request.mtbf_s;
  if (request.restart_s) out.rules.restart_s = *request.restart_s;
  return {};
}

catalog::IntervalInputs inputs_of(const NextSaveRequest& request, NextSaveReport& report) {
  catalog::IntervalInputs in{.now_s = kEndlessS, .time_left_s = request.time_left_s, .measured = report.measured};
  if (!report.last) {
    in.step = request.step.value_or(1);
    return in;
  }
  const catalog::Checkpoint& last = report.last->checkpoint;
  in.step = request.step.value_or(last.step + 1);
  in.last_step = last.step;
  in.now_s = std::chrono::duration<double>(request.now - last.created).count();
  if (in.now_s < 0) {
    report.warnings.push_back(
        fmt::format("the newest checkpoint is {:.0f} s in the future: a clock is wrong", -in.now_s));
    in.now_s = 0;
  }
  in.last_end_s = std::min(in.now_s, in.measured.costs.stall_s);
  return in;
}

}  // namespace

Result<NextSaveReport> next_save(Io& io, const NextSaveRequest& request) {
  NextSaveReport out;
  CKPT_CHECK(check_outermost(io, request.store));
  CKPT_CHECK(find_rules(io, request, out));
  CKPT_TRY(catalog::Catalog index, open_catalog(io, request.store, catalog::Trust::notes, request.now));
  out.warnings = index.warnings();
  CKPT_TRY(const std::vector<catalog::Entry> entries, select_entries(index.database(), {.run = request.run}));
  if (entries.empty()) out.warnings.push_back(fmt::format("{}: no checkpoint of this run yet", request.run));
  if (entries.empty()) CKPT_CHECK(check_seen(index.refreshed().unread, std::span(&request.run, 1)));
  if (const catalog::Entry* last = last_save(entries, request.step)) {
    out.last = *last;
    const std::string newer = newer_unusable(entries, *last);
    if (!newer.empty()) out.warnings.push_back(newer);
  } else if (!entries.empty()) {
    out.unusable = entries.size();
    out.warnings.push_back(fmt::format("{}: none of its {} checkpoints can be used", request.run, entries.size()));
  }
  out.rolled_back = request.step && std::any_of(entries.begin(), entries.end(), [&](const catalog::Entry& entry) {
                      return entry.checkpoint.step > *request.step;
                    });

  out.history = run_history(entries);
  out.measured = out.history.measured;
  out.measured.costs.mtbf_s = out.rules.mtbf_s > 0 ? out.rules.mtbf_s : careful_mtbf(out.history);
  out.measured.costs.restart_s = out.rules.restart_s;
  if (request.step_s) out.measured.step_s = *request.step_s;

  const catalog::IntervalInputs in = inputs_of(request, out);
  catalog::IntervalPolicy policy = out.rules.policy;
  if (!request.step) policy.every_steps.reset();  // the job's progress is unknown
  out.next = catalog::next_save(policy, in);
  if (!request.step && out.rules.policy.every_steps) {
    policy.every_steps = out.rules.policy.every_steps;
    out.next.step = catalog::next_save(policy, in).step;
  }
  if (!out.last && out.unusable == 0 && out.next.answer.save) out.next.answer.text = "no save yet";
  if (out.next.in_s && *out.next.in_s <= kLongestS)
    out.due_at = request.now + std::chrono::ceil<catalog::Duration>(std::chrono::duration<double>(*out.next.in_s));
  return out;
}

}  // namespace ckpt
