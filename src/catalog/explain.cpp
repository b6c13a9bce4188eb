#include "catalog/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "catalog/select.hpp"

namespace ckpt::catalog {
namespace {

using Cause = Reason::Cause;

std::string count_text(const std::optional<std::uint64_t>& count) {
  return count ? fmt::format("{}", *count) : "all";
}

/// "last=3", "every_steps=10000", "within=36 h".
std::string setting(const Rule& rule) {
  switch (rule.kind) {
    case Rule::Kind::every_steps:
      return fmt::format("every_steps={}", rule.step_interval);
    case Rule::Kind::every:
    case Rule::Kind::within:
      return fmt::format("{}={}", kind_name(rule.kind), duration_text(rule.duration));
    case Rule::Kind::steps:
    case Rule::Kind::tags_any:
      return kind_name(rule.kind);
    default:
      return fmt::format("{}={}", kind_name(rule.kind), count_text(rule.count));
  }
}

std::optional<std::uint64_t> limit_of(const Rule& rule) {
  return rule.count ? rule.count : rule.max;
}

void explain_kept(Explanation& out, Verdict::Kind kind, const Reason& reason, const Rule& rule,
                  const Checkpoint& checkpoint) {
  out.rank = reason.rank;
  if (kind == Verdict::Kind::kept_unmeasured) {
    out.rank.reset();
    out.text = fmt::format("{}(no {}: kept)", rule.id, rule.metric);
  } else if (is_calendar(rule.kind)) {
    out.text = fmt::format("{}#{}({}, {}{})", rule.id, reason.rank, setting(rule), out.bucket,
                           kind == Verdict::Kind::kept_oldest ? ", oldest" : "");
  } else if (rule.kind == Rule::Kind::best) {
    out.text = fmt::format("{}#{}({}={})", rule.id, reason.rank, rule.metric, out.value);
  } else if (rule.kind == Rule::Kind::every_steps && rule.step_mode == Rule::StepMode::exact) {
    out.text = fmt::format("{}({}%{}==0)", rule.id, checkpoint.step, rule.step_interval);
  } else if (rule.kind == Rule::Kind::last || rule.kind == Rule::Kind::first) {
    out.text = fmt::format("{}#{}({})", rule.id, reason.rank, setting(rule));
  } else {
    out.text = fmt::format("{}({})", rule.id, setting(rule));
  }
}

void explain_miss(Explanation& out, Verdict::Kind kind, const Reason& reason, const Rule& rule,
                  std::span<const Checkpoint> checkpoints) {
  const std::string other =
      reason.other < checkpoints.size() ? fmt::format("{}", checkpoints[reason.other].step) : std::string("another");
  switch (kind) {
    case Verdict::Kind::beyond:
      out.rank = reason.rank;
      out.text = fmt::format("{} rank {}>{}", rule.id, reason.rank, count_text(limit_of(rule)));
      break;
    case Verdict::Kind::held:
      out.text = fmt::format("{}{} bucket {} already held by {}", rule.id == kind_name(rule.kind) ? "" : rule.id + " ",
                             kind_name(rule.kind), out.bucket, other);
      break;
    case Verdict::Kind::replaced:
      out.text = fmt::format("{}: replaced by a newer save of this step", rule.id);
      break;
    case Verdict::Kind::off_step:
      out.value = fmt::format("{}", reason.value);
      out.text = rule.step_mode == Rule::StepMode::closest
                     ? fmt::format("{}: another is nearer to each multiple of {}", rule.id, rule.step_interval)
                     : fmt::format("{} step%{}=={}", rule.id, rule.step_interval, reason.value);
      break;
    case Verdict::Kind::too_soon:
      out.value = rule.kind == Rule::Kind::every ? duration_text(Duration(reason.value))
                                                 : fmt::format("{} steps", reason.value);
      out.text = fmt::format("{} only {} after {}", rule.id, out.value, other);
      break;
    case Verdict::Kind::too_old:
      out.value = duration_text(Duration(reason.value));
      out.text = fmt::format("{} age {}>={}", rule.id, out.value, duration_text(rule.duration));
      break;
    case Verdict::Kind::unmeasured:
      out.text = fmt::format("{} has no {}", rule.id, rule.metric);
      break;
    case Verdict::Kind::unlisted:
      out.text = fmt::format("{} does not list it", rule.id);
      break;
    case Verdict::Kind::untagged:
      out.text = fmt::format("{} no such tag", rule.id);
      break;
    case Verdict::Kind::filtered:
      out.text = fmt::format("{} where is false", rule.id);
      break;
    case Verdict::Kind::passed_over:
      out.text = fmt::format("{} kept by an earlier rule", rule.id);
      break;
    case Verdict::Kind::kept:
    case Verdict::Kind::kept_oldest:
    case Verdict::Kind::kept_unmeasured:
      break;
  }
}

Explanation explain_rule(const Reason& reason, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                         const Policy& policy) {
  const Rule& rule = policy.keep[reason.rule];
  const auto kind = static_cast<Verdict::Kind>(reason.verdict);
  Explanation out{.rule = rule.id, .limit = limit_of(rule)};
  const bool in_bucket = kind != Verdict::Kind::filtered && kind != Verdict::Kind::replaced;
  if (is_calendar(rule.kind) && in_bucket) out.bucket = bucket_name(period_of(rule.kind), reason.value);
  if (rule.kind == Rule::Kind::best) {
    const double* metric = find_metric(checkpoint, rule.metric);
    if (metric != nullptr) out.value = fmt::format("{}", *metric);
  }
  if (kind <= Verdict::Kind::kept_unmeasured) {
    explain_kept(out, kind, reason, rule, checkpoint);
  } else {
    explain_miss(out, kind, reason, rule, checkpoints);
  }
  return out;
}

Explanation named(std::string rule, std::string text, std::string value = {}) {
  return {.rule = std::move(rule), .value = std::move(value), .text = std::move(text)};
}

std::string pin_text(const Checkpoint& checkpoint) {
  if (checkpoint.pins.empty()) return "pinned";
  const Pin& pin = checkpoint.pins.front();
  std::string out = "pinned";
  if (!pin.owner.empty()) out += " by " + pin.owner;
  if (pin.until) out += " until " + bucket_name(Period::daily, bucket_of(Period::daily, *pin.until, {}));
  return pin.reason.empty() ? out : fmt::format("{} \"{}\"", out, pin.reason);
}

std::vector<Explanation> explain_all(const std::vector<Reason>& reasons, const Checkpoint& checkpoint,
                                     std::span<const Checkpoint> checkpoints, const Policy& policy) {
  std::vector<Explanation> out;
  out.reserve(reasons.size());
  for (const Reason& reason : reasons) out.push_back(explain(reason, checkpoint, checkpoints, policy));
  return out;
}

/// Without the near misses.
Explanations explain_stay(const Decision& decision, const Checkpoint& checkpoint,
                          std::span<const Checkpoint> checkpoints, const Policy& policy) {
  return {.reasons = explain_all(decision.reasons, checkpoint, checkpoints, policy),
          .blockers = explain_all(decision.blockers, checkpoint, checkpoints, policy)};
}

bool names_misses(const Decision& decision) {
  return decision.action == Action::trash && !decision.near_misses.empty();
}

}  // namespace

const char* action_name(Action action) {
  static constexpr std::array<const char*, 5> names{"KEEP", "DEMOTE", "TRASH", "SKIP", "BLOCK"};
  return names[static_cast<std::size_t>(action)];
}

std::string duration_text(Duration duration) {
  const auto ms = static_cast<double>(duration.count());
  if (duration.count() % 1000 != 0 && ms < 1000) return fmt::format("{} ms", duration.count());
  if (ms < 120'000) return fmt::format("{:.4g} s", ms / 1000);
  if (ms < 7'200'000) return fmt::format("{:.3g} min", ms / 60'000);
  if (ms < 172'800'000) return fmt::format("{:.3g} h", ms / 3'600'000);
  return fmt::format("{:.4g} d", ms / 86'400'000);
}

Explanation explain(const Reason& reason, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                    const Policy& policy) {
  switch (reason.cause) {
    case Cause::rule:
      return explain_rule(reason, checkpoint, checkpoints, policy);
    case Cause::relaxed: {
      Explanation out = explain_rule(reason, checkpoint, checkpoints, policy);
      out.text = "space is short: " + out.text + " broken";
      return out;
    }
    case Cause::newest:
    case Cause::newest_verified: {
      const bool verified = reason.cause == Cause::newest_verified;
      Explanation out = named(verified ? "guard.newest_verified" : "guard.newest",
                              fmt::format("guard:{}#{}", verified ? "newest_verified" : "newest", reason.rank));
      out.rank = reason.rank;
      out.limit = verified ? policy.guard.newest_verified : policy.guard.newest;
      return out;
    }
    case Cause::resume_source:
      return named("guard.resume_source", "guard:the running job started from it");
    case Cause::min_age:
      return named("guard.min_age", fmt::format("guard:younger than {}", duration_text(policy.guard.min_age)));
    case Cause::min_keep:
      return named("guard.min_keep", fmt::format("guard:min_keep={}", policy.guard.min_keep));
    case Cause::no_verified_successor:
      return named("guard.require_verified_successor", "guard:no newer one is verified");
    case Cause::floor_newest:
      return named("floor.newest", "the newest remaining");
    case Cause::being_read:
      return named("floor.being_read", fmt::format("being read: {}", fmt::join(checkpoint.readers, ", ")));
    case Cause::pinned:
      return named("floor.pinned", pin_text(checkpoint));
    case Cause::referenced:
      return named("floor.referenced", fmt::format("holds bytes of {}", fmt::join(checkpoint.references, ", ")));
    case Cause::is_virtual:
      return named("floor.virtual", "virtual: its tensors are in other checkpoints ('ckpt materialize' copies them)");
    case Cause::tracked:
      return named("floor.tracked", fmt::format("named by {}", fmt::join(checkpoint.trackers, ", ")));
    case Cause::unreadable:
      return named("floor.unreadable", "unreadable at present");
    case Cause::unfinished:
      return named("floor.unfinished",
                   fmt::format("modified by another tool {} ago: treated as unfinished for {} (foreign_min_age)",
                               duration_text(std::max(Duration(reason.value), Duration{})),
                               duration_text(policy.guard.foreign_min_age)),
                   duration_text(Duration(reason.value)));
    case Cause::repairable:
      return named("floor.repairable", "repairable with 'ckpt repair'");
    case Cause::marks_unreadable:
      return named("floor.marks_unreadable", "its marks are currently unreadable");
    case Cause::uncommitted:
      return named("floor.uncommitted", "unfinished save, running or killed");
    case Cause::link:
      return named("floor.link", "a symbolic link");
    case Cause::corrupt:
      return named("floor.corrupt", "damaged (--include-corrupt deletes it)");
    case Cause::corrupt_goes:
      return named("corrupt", "damaged, and --include-corrupt was given");
    case Cause::superseded_grace:
      return named("floor.superseded", fmt::format("superseded by a later series; {} of grace left",
                                                   duration_text(Duration(reason.value))));
    case Cause::last_of_series:
      return named("floor.last_of_series",
                   fmt::format("the last verified checkpoint of superseded series {} (--drop-series {} deletes it)",
                               checkpoint.series, checkpoint.series));
    case Cause::superseded:
      return named("superseded", fmt::format("superseded: a later series began before step {}", checkpoint.step));
    case Cause::old_optimizer: {
      const std::string age = duration_text(Duration(reason.value));
      return named("drop_optimizer_after", fmt::format("weights only: {} old", age), age);
    }
  }
  return {};
}

Explanations explain(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                     const Policy& policy) {
  Explanations out = explain_stay(decision, checkpoint, checkpoints, policy);
  out.near_misses = explain_all(decision.near_misses, checkpoint, checkpoints, policy);
  return out;
}

std::string why(const Decision& decision, const Explanations& explanation) {
  std::string out;
  for (const auto* all : {&explanation.reasons, &explanation.blockers}) {
    for (const Explanation& one : *all) out += (out.empty() ? "" : "  ") + one.text;
  }
  if (names_misses(decision)) {
    const char* between = out.empty() ? "no rule: " : "  no rule: ";
    for (const Explanation& one : explanation.near_misses) {
      out += between + one.text;
      between = "; ";
    }
  }
  if (decision.would_be_trash) out += "   [would be TRASH]";
  return out;
}

std::string why(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                const Policy& policy) {
  return why(decision, names_misses(decision) ? explain(decision, checkpoint, checkpoints, policy)
                                              : explain_stay(decision, checkpoint, checkpoints, policy));
}

std::string rule_meaning(const Rule& rule) {
  std::string out;
  switch (rule.kind) {
    case Rule::Kind::last:
    case Rule::Kind::first: {
      const char* which = rule.kind == Rule::Kind::last ? "newest" : "oldest";
      out = rule.count ? fmt::format("the {} {}", which, *rule.count) : std::string("all");
      break;
    }
    case Rule::Kind::every_steps: {
      static constexpr std::array<const char*, 3> modes{"steps that are multiples of {0}",
                                                        "from the oldest, at least {0} steps apart",
                                                        "the nearest to each multiple of {0} steps, and the newest"};
      out = fmt::format(fmt::runtime(modes[static_cast<std::size_t>(rule.step_mode)]), rule.step_interval);
      break;
    }
    case Rule::Kind::every:
      out = fmt::format("from the oldest, at least {} apart", duration_text(rule.duration));
      break;
    case Rule::Kind::within:
      out = fmt::format("younger than {}, from {}", duration_text(rule.duration),
                        rule.from == Rule::From::now ? "now" : "the newest");
      break;
    case Rule::Kind::best:
      out = fmt::format("the {} with the {} {}", count_text(rule.count),
                        rule.better == Rule::Better::lower ? "lowest" : "highest", rule.metric);
      if (rule.missing == Rule::Missing::keep) out += ", and all without it";
      break;
    case Rule::Kind::steps:
      out = fmt::format("steps {}", fmt::join(rule.steps, ", "));
      break;
    case Rule::Kind::tags_any:
      out = fmt::format("tagged {}", fmt::join(rule.tags, " or "));
      break;
    default: {
      static constexpr std::array<const char*, 5> units{"hours", "days", "weeks", "months", "years"};
      const auto unit = units[static_cast<std::size_t>(period_of(rule.kind))];
      out = rule.count ? fmt::format("the newest of each of the last {} {} with checkpoints", *rule.count, unit)
                       : fmt::format("the newest of each of the {} with checkpoints", unit);
    }
  }
  if (rule.where) out += fmt::format(", where {}", rule.where->text());
  if (rule.max) out += fmt::format(", at most {}", *rule.max);
  return out;
}

}  // namespace ckpt::catalog
