#include "cli/report/policy_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "catalog/interval_policy.hpp"
#include "cli/output/paragraph.hpp"
#include "format/text/glob.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t kTopicWidth = 9;  // "policy", "weights"

/// Checkpoints of a policy's runs, or of one run.
struct RunsKept {
  std::map<std::string, std::uint64_t> runs{};   ///< checkpoints of each
  std::map<std::string, std::uint64_t> rules{};  ///< kept by each rule, by its id
  std::uint64_t count = 0;
  std::uint64_t deleted = 0;
  std::uint64_t demoted = 0;
};

RunsKept kept_of(const PrunePart& part, const std::string& run) {
  RunsKept out;
  for (std::size_t i = 0; i < part.checkpoints.size(); ++i) {
    if (!run.empty() && part.checkpoints[i].run != run) continue;
    ++out.count;
    ++out.runs[part.checkpoints[i].run];
    const catalog::Action action = planned_action(part, i);
    out.deleted += action == catalog::Action::trash ? 1 : 0;
    out.demoted += action == catalog::Action::demote ? 1 : 0;
    for (const catalog::Reason& reason : part.retention.decisions[i].reasons)
      if (reason.cause == catalog::Reason::Cause::rule) ++out.rules[part.policy.keep[reason.rule].id];
  }
  return out;
}

/// The checkpoints of each run that no policy matches.
std::map<std::string, std::uint64_t> unmatched(const PrunePlan& plan, const std::string& run) {
  std::map<std::string, std::uint64_t> out;
  for (const catalog::Entry& entry : plan.undecided)
    if (run.empty() || entry.checkpoint.run == run) ++out[entry.checkpoint.run];
  return out;
}

std::string runs_text(const std::map<std::string, std::uint64_t>& runs) {
  std::string out;
  for (const auto& [run, count] : runs)
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", printable(run), format_count(count));
  return out;
}

/// One topic and its text, wrapped below itself.
void print_topic(Context& context, std::string_view topic, const std::string& text) {
  const std::size_t indent = kTopicWidth + 2;
  const std::string body = wrapped(text, indent, context.console.table_width());
  say(context, fmt::format("{:<{}}  {}", topic, kTopicWidth, body.substr(indent)), true);
}

void print_interval(Context& context, const std::string& runs, const catalog::IntervalRules& rules) {
  for (const std::string& line : catalog::interval_meaning(rules))
    print_topic(context, "save", runs.empty() ? line : fmt::format("{}: {}", printable(runs), line));
}

std::string_view applied_word(CheckedPolicy::Applied applied) {
  switch (applied) {
    case CheckedPolicy::Applied::never:
      return "never";
    case CheckedPolicy::Applied::same:
      return "same";
    case CheckedPolicy::Applied::changed:
      return "changed";
    case CheckedPolicy::Applied::unknown:
      break;
  }
  return "unknown";
}

void put_policy_line(json::Writer& out, const catalog::PolicyLine& line) {
  out.member("topic", line.topic);
  put_text(out, "text", line.text);
  if (!line.rule.empty()) put_text(out, "rule", line.rule);
}

void put_run_counts(json::Writer& out, std::string_view key, const std::map<std::string, std::uint64_t>& runs) {
  out.key(key).begin_array();
  for (const auto& [run, count] : runs) {
    out.begin_object();
    put_text(out, "run", run);
    out.member("checkpoints", count).end_object();
  }
  out.end_array();
}

/// Whether a policy is shown: all, or that of the run.
bool concerns(const PrunePlan& plan, const PrunePart& part, const std::string& run) {
  if (run.empty()) return true;
  const catalog::Policy* policy = catalog::policy_of(plan.policies.policies, run);
  return policy != nullptr && *policy == part.policy;
}

void print_changes(Context& context, const CheckedPolicy& checked) {
  std::string before;
  for (const catalog::PolicyChange& change : checked.changes) {
    if (change.runs != before) say(context, fmt::format("changed for {}\n", printable(change.runs)), true);
    before = change.runs;
    const std::string sign = context.console.paint_out(change.added ? Ink::green : Ink::red, change.added ? "+" : "-");
    say(context, fmt::format("  {} {:<{}}  {}\n", sign, change.line.topic, kTopicWidth, printable(change.line.text)),
        true);
  }
}

}  // namespace

void print_shown_policy(Context& context, const PrunePlan& plan, const std::string& run) {
  const bool matched = run.empty() || catalog::policy_of(plan.policies.policies, run) != nullptr;
  bool first = true;
  for (const PrunePart& part : plan.parts) {
    if (!concerns(plan, part, run)) continue;
    if (!std::exchange(first, false)) say(context, "\n", true);
    const RunsKept kept = kept_of(part, run);
    print_topic(context, "policy",
                fmt::format("for {} ({})", printable(part.policy.runs), printable(plan.policies.source)));
    print_topic(context, "runs",
                kept.runs.empty() ? (run.empty() ? "none yet" : printable(run) + " (no checkpoint yet)")
                                  : runs_text(kept.runs));
    for (const catalog::PolicyLine& line : catalog::policy_lines(part.policy)) {
      const auto of_rule = kept.rules.find(line.rule);
      const std::uint64_t count = of_rule == kept.rules.end() ? 0 : of_rule->second;
      print_topic(context, line.topic,
                  printable(line.text) + (line.rule.empty() ? "" : fmt::format(" (now {})", format_count(count))));
    }
    print_topic(context, "always",
                "pinned checkpoints stay, and those in use, referenced by others, or named by 'latest' or a link");
    std::string today =
        fmt::format("{} of {} would be deleted", format_count(kept.deleted), format_counted(kept.count, "checkpoint"));
    if (kept.demoted != 0) today += fmt::format(", {} reduced to weights", format_count(kept.demoted));
    print_topic(context, "now", kept.count == 0 ? "nothing to delete" : today);
    if (part.retention.aborted) print_topic(context, "stopped", printable(*part.retention.aborted));
  }
  auto none = unmatched(plan, run);
  if ((!none.empty() || !matched) && !first) say(context, "\n", true);
  for (const auto& [other, directory] : plan.elsewhere) {
    const auto here = none.extract(other);
    if (!here.empty())
      print_topic(context, "elsewhere",
                  fmt::format("{} ({}): governed by {}/{}", printable(other), format_count(here.mapped()),
                              printable(directory), kPolicyFile));
  }
  if (!none.empty() || (!matched && !plan.elsewhere.contains(run))) {
    print_topic(context, "no policy",
                (none.empty() ? printable(run) + " (no checkpoint yet)" : runs_text(none)) +
                    ": no pattern matches; prune never changes " + (none.size() > 1 ? "these runs" : "this run"));
  }
  bool replaced = false;  // by the first rule that matches the run
  for (const catalog::RunInterval& one : plan.policies.run_intervals) {
    if (!run.empty() && (replaced || !matches_glob(run, one.runs))) continue;
    print_interval(context, one.runs, one.rules);
    replaced = !run.empty();
  }
  if (plan.policies.interval && !replaced) print_interval(context, "", *plan.policies.interval);
}

std::string shown_policy_data(const PrunePlan& plan, const std::string& run) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object().member("action", "show");
  put_text(out, "store", plan.store);
  put_text(out, "policy", plan.policies.source);
  out.key("policies").begin_array();
  for (const PrunePart& part : plan.parts) {
    if (!concerns(plan, part, run)) continue;
    const RunsKept kept = kept_of(part, run);
    out.begin_object();
    put_text(out, "runs", part.policy.runs);
    put_run_counts(out, "matches", kept.runs);
    out.key("lines").begin_array();
    for (const catalog::PolicyLine& line : catalog::policy_lines(part.policy)) {
      const auto of_rule = kept.rules.find(line.rule);
      out.begin_object();
      put_policy_line(out, line);
      if (!line.rule.empty()) out.member("keeps", of_rule == kept.rules.end() ? 0 : of_rule->second);
      out.end_object();
    }
    out.end_array().member("checkpoints", kept.count).member("delete_count", kept.deleted);
    out.member("demote_count", kept.demoted).end_object();
  }
  out.end_array();
  put_run_counts(out, "unmatched", unmatched(plan, run));
  out.end_object();
  return data;
}

void print_checked_policy(Context& context, const CheckedPolicy& checked) {
  using Applied = CheckedPolicy::Applied;
  const std::vector<catalog::Policy>& policies = checked.file.policies;
  std::size_t rules = 0;
  for (const catalog::Policy& policy : policies) rules += policy.keep.size();
  std::string line = fmt::format("{}: valid: ", printable(checked.path));
  line += policies.size() == 1 ? "1 policy" : fmt::format("{} policies", policies.size());
  say(context, line + ", " + format_counted(rules, "rule") + "\n", true);
  if (policies.empty()) say(context, "it has no rule that keeps a checkpoint: ckpt prune refuses it\n", true);
  for (const std::size_t i : checked.unreached)
    say(context,
        fmt::format("note    policy {} ({}) never applies: an earlier policy matches its runs\n", i + 1,
                    printable(policies[i].runs)),
        true);
  const std::string source = printable(checked.applied_source);
  switch (checked.applied) {
    case Applied::never:
      say(context, "no policy has been applied in this store yet\n", true);
      break;
    case Applied::same:
      say(context, "the last prune applied the same policy\n", true);
      break;
    case Applied::unknown:
      say(context, "it differs from the policy that the last prune applied, whose rules are not recorded\n", true);
      break;
    case Applied::changed:
      if (checked.changes.empty()) {
        say(context, "the same rules as in the last prune; only names or their order differ\n", true);
      } else {
        say(context, fmt::format("since the last prune, by {} (- before, + now):\n", source), true);
        print_changes(context, checked);
      }
      break;
  }
}

std::string checked_policy_data(const CheckedPolicy& checked) {
  std::string data;
  json::Writer out = data_writer(data);
  out.begin_object().member("action", "check");
  put_text(out, "store", checked.store);
  put_text(out, "path", checked.path);
  out.key("policies").begin_array();
  for (const catalog::Policy& policy : checked.file.policies) {
    out.begin_object();
    put_text(out, "runs", policy.runs);
    out.key("lines").begin_array();
    for (const catalog::PolicyLine& line : catalog::policy_lines(policy)) {
      out.begin_object();
      put_policy_line(out, line);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().key("never_apply").begin_array();
  for (const std::size_t i : checked.unreached) out.value(static_cast<std::uint64_t>(i));
  out.end_array().member("last_prune", applied_word(checked.applied)).key("changes").begin_array();
  for (const catalog::PolicyChange& change : checked.changes) {
    out.begin_object().member("change", change.added ? "added" : "removed");
    put_text(out, "runs", change.runs);
    put_policy_line(out, change.line);
    out.end_object();
  }
  out.end_array().end_object();
  return data;
}

}  // namespace ckpt::cli
