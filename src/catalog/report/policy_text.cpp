#include "catalog/report/policy_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "catalog/report/explain.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

std::string amount_text(const Amount& amount) {
  return amount.percent ? fmt::format("{} % of the volume", *amount.percent) : size_text(amount.bytes);
}

std::string newest_text(std::uint64_t count, const char* kind) {
  return count == 1 ? fmt::format("the newest {}checkpoint of each run stays", kind)
                    : fmt::format("the newest {} {}checkpoints of each run stay", count, kind);
}

class Lines {
 public:
  void add(const char* topic, std::string text, std::string rule = {}) {
    out_.push_back({.topic = topic, .text = std::move(text), .rule = std::move(rule)});
  }
  std::vector<PolicyLine> take() { return std::move(out_); }

 private:
  std::vector<PolicyLine> out_{};
};

void add_pressure(Lines& out, const Policy& policy) {
  const Pressure& pressure = policy.pressure;
  if (pressure.max_size) out.add("space", fmt::format("checkpoints take at most {}", amount_text(*pressure.max_size)));
  if (pressure.min_free) out.add("space", fmt::format("at least {} stays free", amount_text(*pressure.min_free)));
  if (pressure.headroom)
    out.add("space", fmt::format("{} x the size of the newest checkpoint stays free", *pressure.headroom));
  if (!pressure.max_size && !pressure.min_free && !pressure.headroom) return;
  std::vector<std::string> ids;
  for (const std::size_t index : relax_order(policy)) ids.push_back(policy.keep[index].id);
  out.add("space", ids.empty()
                       ? "if space is short, no rule is broken"
                       : fmt::format("if space is short, rules are broken in this order: {}", fmt::join(ids, ", ")));
}

void add_guard(Lines& out, const Guard& guard) {
  if (guard.newest != 0) out.add("guard", newest_text(guard.newest, ""));
  if (guard.newest_verified != 0) out.add("guard", newest_text(guard.newest_verified, "verified "));
  if (guard.resume_source) out.add("guard", "the checkpoint that a trainer loaded last stays");
  if (guard.min_age > Duration{})
    out.add("guard", fmt::format("checkpoints younger than {} stay", duration_text(guard.min_age)));
  if (guard.min_keep > 1) out.add("guard", fmt::format("at least {} checkpoints of each run stay", guard.min_keep));
  if (guard.foreign_min_age != kForeignMinAge)
    out.add("guard", fmt::format("another tool's checkpoint with a file younger than {} counts as unfinished",
                                 duration_text(guard.foreign_min_age)));
  if (guard.require_verified_successor) out.add("guard", "a checkpoint is deleted only if a later one is verified");
  out.add("guard", fmt::format("when the policy is new or changed, -y is needed to delete more than {:g} %",
                               guard.max_delete_fraction * 100));
}

void add_trash(Lines& out, const Trash& trash) {
  out.add("trash", trash.ttl > Duration{}
                       ? fmt::format("deleted checkpoints can be restored for {}", duration_text(trash.ttl))
                       : std::string("deleted checkpoints cannot be restored"));
  if (trash.purge_early_when_free_below && trash.ttl > Duration{})
    out.add("trash", fmt::format("it is emptied early if less than {} is free",
                                 amount_text(*trash.purge_early_when_free_below)));
  if (trash.recycle != 0)
    out.add("trash", fmt::format("files of the {} most recently deleted are reused by the next save, and cannot be "
                                 "restored",
                                 trash.recycle));
}

void add_counting(Lines& out, const Policy& policy) {
  if (policy.group_by != std::vector<std::string>{"run"})
    out.add("count", fmt::format("rules count separately for each {}", fmt::join(policy.group_by, ", ")));
  if (policy.exclusive) out.add("count", "checkpoints kept by one rule do not count for later rules");
  if (policy.zone != TimeZone{})
    out.add("count", fmt::format("days begin at midnight in {}", time_zone_text(policy.zone)));
}

const Policy* same_runs(const std::vector<Policy>& policies, const std::string& runs) {
  const auto found = std::ranges::find(policies, runs, &Policy::runs);
  return found == policies.end() ? nullptr : &*found;
}

/// The lines of `from` that `other` lacks. The ids of rules may differ.
void add_missing(const std::string& runs, const std::vector<PolicyLine>& from, const std::vector<PolicyLine>& other,
                 bool added, std::vector<PolicyChange>& out) {
  for (const PolicyLine& line : from) {
    const bool there = std::ranges::any_of(
        other, [&](const PolicyLine& one) { return one.topic == line.topic && one.text == line.text; });
    if (!there) out.push_back({.added = added, .runs = runs, .line = line});
  }
}

}  // namespace

std::vector<PolicyLine> policy_lines(const Policy& policy) {
  Lines out;
  for (const Rule& rule : policy.keep) out.add("keep", rule_meaning(rule), rule.id);
  if (policy.drop_optimizer_after) {
    out.add("weights", *policy.drop_optimizer_after > Duration{}
                           ? fmt::format("checkpoints older than {} lose their optimizer state",
                                         duration_text(*policy.drop_optimizer_after))
                           : std::string("checkpoints that only a rule keeps lose their optimizer state"));
  }
  add_pressure(out, policy);
  add_guard(out, policy.guard);
  add_trash(out, policy.trash);
  add_counting(out, policy);
  return out.take();
}

std::vector<PolicyChange> policy_changes(const std::vector<Policy>& before, const std::vector<Policy>& after) {
  std::vector<PolicyChange> out;
  for (const Policy& policy : before) {
    const Policy* now = same_runs(after, policy.runs);
    add_missing(policy.runs, policy_lines(policy), now == nullptr ? std::vector<PolicyLine>{} : policy_lines(*now),
                false, out);
  }
  for (const Policy& policy : after) {
    const Policy* then = same_runs(before, policy.runs);
    add_missing(policy.runs, policy_lines(policy), then == nullptr ? std::vector<PolicyLine>{} : policy_lines(*then),
                true, out);
  }
  return out;
}

std::vector<std::size_t> unreached_policies(const std::vector<Policy>& policies) {
  std::vector<std::size_t> out;
  for (std::size_t i = 1; i < policies.size(); ++i) {
    const bool hidden = std::any_of(policies.begin(), policies.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const Policy& one) { return one.runs == "*" || one.runs == policies[i].runs; });
    if (hidden) out.push_back(i);
  }
  return out;
}

}  // namespace ckpt::catalog
