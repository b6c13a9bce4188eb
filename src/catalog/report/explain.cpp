#include "catalog/report/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "catalog/select.hpp"

namespace ckpt::catalog {
namespace {

using Cause = Reason::Cause;

std::string count_text(const std::optional<std::uint64_t>& count) {
  return count ? fmt::format("{}", *count) : "all";
}

/// "1st", "2nd", "11th".
std::string ordinal(std::uint64_t rank) {
  const std::uint64_t last = rank % 10;
  const bool teens = rank % 100 >= 11 && rank % 100 <= 13;
  const char* suffix = teens || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd";
  return fmt::format("{}{}", rank, suffix);
}

/// What a calendar rule counts: "hour".
const char* unit_of(const Rule& rule) {
  static constexpr std::array<const char*, 5> units{"hour", "day", "week", "month", "year"};
  return units[static_cast<std::size_t>(period_of(rule.kind))];
}

/// "36 h", or "10000 steps": how far apart a rule wants checkpoints.
std::string distance_text(const Rule& rule) {
  return rule.kind == Rule::Kind::every ? duration_text(rule.duration) : fmt::format("{} steps", rule.step_interval);
}

std::optional<std::uint64_t> limit_of(const Rule& rule) {
  return rule.count ? rule.count : rule.max;
}

std::string kept_text(Verdict::Kind kind, const Reason& reason, const Rule& rule, const Explanation& about) {
  if (kind == Verdict::Kind::kept_unmeasured)
    return rule.missing == Rule::Missing::keep
               ? fmt::format("has no {}; the rule keeps checkpoints without it", rule.metric)
               : fmt::format("no {} in its run: the rule '{}' keeps all", rule.metric, rule.id);
  if (is_calendar(rule.kind))
    return fmt::format("{} of {} {} ({} of {})", kind == Verdict::Kind::kept_oldest ? "oldest" : "newest",
                       unit_of(rule), about.bucket, ordinal(reason.rank), count_text(rule.count));
  switch (rule.kind) {
    case Rule::Kind::last:
    case Rule::Kind::first: {
      const char* which = rule.kind == Rule::Kind::last ? "newest" : "oldest";
      if (!rule.count) return "all are kept";
      return fmt::format("in the {} {} ({})", which, *rule.count, ordinal(reason.rank));
    }
    case Rule::Kind::every_steps:
      if (rule.step_mode == Rule::StepMode::exact) return fmt::format("a multiple of {}", rule.step_interval);
      if (rule.step_mode == Rule::StepMode::closest)
        return fmt::format("the nearest to a multiple of {}", rule.step_interval);
      [[fallthrough]];
    case Rule::Kind::every:
      return fmt::format("at least {} after the last one kept", distance_text(rule));
    case Rule::Kind::within:
      return fmt::format("{} {}", reason.value == 0 ? "within" : "after a step within", duration_text(rule.duration));
    case Rule::Kind::best:
      return fmt::format("in the best {} by {} ({}: {})", count_text(rule.count), rule.metric, ordinal(reason.rank),
                         about.value);
    case Rule::Kind::steps:
      return "its step is listed";
    default:
      return fmt::format("tagged {}", fmt::join(rule.tags, " or "));
  }
}

void explain_miss(Explanation& out, Verdict::Kind kind, const Reason& reason, const Rule& rule,
                  std::span<const Checkpoint> checkpoints) {
  const std::string other = reason.other < checkpoints.size() ? fmt::format("step {}", checkpoints[reason.other].step)
                                                              : std::string("another");
  switch (kind) {
    case Verdict::Kind::beyond: {
      out.rank = reason.rank;
      const std::string limit = count_text(limit_of(rule));
      const std::string rank = ordinal(reason.rank);
      if (rule.kind == Rule::Kind::best) {
        out.text = fmt::format("not in the best {} by {} ({})", limit, rule.metric, rank);
      } else if (is_calendar(rule.kind)) {
        out.text = fmt::format("not in the newest {} {}s ({})", limit, unit_of(rule), rank);
      } else if (rule.kind == Rule::Kind::last || rule.kind == Rule::Kind::first) {
        out.text =
            fmt::format("not in the {} {} ({})", rule.kind == Rule::Kind::last ? "newest" : "oldest", limit, rank);
      } else {
        out.text = fmt::format("not in the newest {} of rule {} ({})", limit, rule.id, rank);
      }
      break;
    }
    case Verdict::Kind::held:
      out.text = fmt::format("not the newest of {} {} ({} is)", unit_of(rule), out.bucket, other);
      break;
    case Verdict::Kind::replaced:
      out.text = "replaced by a newer save of this step";
      break;
    case Verdict::Kind::off_step:
      out.value = fmt::format("{}", reason.value);
      out.text = fmt::format("not {} multiple of {}",
                             rule.step_mode == Rule::StepMode::closest ? "the nearest to a" : "a", rule.step_interval);
      break;
    case Verdict::Kind::too_soon:
      out.value = rule.kind == Rule::Kind::every ? duration_text(Duration(reason.value))
                                                 : fmt::format("{} steps", reason.value);
      out.text = fmt::format("less than {} after {} ({})", distance_text(rule), other, out.value);
      break;
    case Verdict::Kind::too_old:
      out.value = duration_text(Duration(reason.value));
      out.text = fmt::format("older than {} ({})", duration_text(rule.duration), out.value);
      break;
    case Verdict::Kind::unmeasured:
      out.text = fmt::format("has no {}", rule.metric);
      break;
    case Verdict::Kind::unlisted:
      out.text = "its step is not listed";
      break;
    case Verdict::Kind::untagged:
      out.text = fmt::format("not tagged {}", fmt::join(rule.tags, " or "));
      break;
    case Verdict::Kind::filtered:
      out.text = fmt::format("not where {}", rule.where ? rule.where->text() : std::string());
      break;
    case Verdict::Kind::passed_over:
      out.text = fmt::format("rule {} does not count it: an earlier rule keeps it", rule.id);
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
    if (kind != Verdict::Kind::kept_unmeasured) out.rank = reason.rank;
    out.text = kept_text(kind, reason, rule, out);
  } else {
    explain_miss(out, kind, reason, rule, checkpoints);
  }
  return out;
}

Explanation named(std::string rule, std::string text, std::string value = {}) {
  return {.rule = std::move(rule), .value = std::move(value), .text = std::move(text)};
}

std::string tracked_text(const std::vector<std::string>& trackers) {
  std::vector<std::string> known;
  std::ranges::copy_if(trackers, std::back_inserter(known), [](const std::string& tracker) {
    return !tracker.ends_with(kCannotBeRead) && !tracker.ends_with(kCannotBeFollowed);
  });
  return known.empty() ? "perhaps named by " + trackers.front() : fmt::format("named by {}", fmt::join(known, ", "));
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
      out.text = "space is short; else kept: " + out.text;
      return out;
    }
    case Cause::newest:
    case Cause::newest_verified: {
      const bool verified = reason.cause == Cause::newest_verified;
      Explanation out =
          named(verified ? "guard.newest_verified" : "guard.newest",
                fmt::format("the {}newest {}of its run", reason.rank > 1 ? ordinal(reason.rank) + " " : "",
                            verified ? "verified " : ""));
      out.rank = reason.rank;
      out.limit = verified ? policy.guard.newest_verified : policy.guard.newest;
      return out;
    }
    case Cause::resume_source:
      return named("guard.resume_source", "a trainer loaded it last");
    case Cause::min_age:
      return named("guard.min_age", fmt::format("younger than {} (min_age)", duration_text(policy.guard.min_age)));
    case Cause::min_keep:
      return named("guard.min_keep", fmt::format("at least {} of a run stay (min_keep)", policy.guard.min_keep));
    case Cause::no_verified_successor:
      return named("guard.require_verified_successor", "no newer one is verified");
    case Cause::floor_newest:
      return named("floor.newest", "the last usable one of its run");
    case Cause::being_read:
      return named("floor.being_read", fmt::format("being read: {}", fmt::join(checkpoint.readers, ", ")));
    case Cause::pinned:
      return named("floor.pinned", pin_text(checkpoint));
    case Cause::referenced:
      return named("floor.referenced", fmt::format("holds bytes of {}", fmt::join(checkpoint.references, ", ")));
    case Cause::is_virtual:
      return named("floor.virtual", "virtual: its tensors are in other checkpoints ('ckpt materialize' copies them)");
    case Cause::tracked:
      return named("floor.tracked", tracked_text(checkpoint.trackers));
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
    case Cause::single_file:
      return named("floor.single_file", "a single file: ckpt deletes only checkpoint directories");
    case Cause::corrupt:
      return named("floor.corrupt", "damaged (--include-damaged deletes it)");
    case Cause::corrupt_goes:
      return named("corrupt", "damaged; deleted as requested");
    case Cause::undeleted:
      return named("floor.undeleted", fmt::format("restored from the trash; {} of its new grace left",
                                                  duration_text(Duration(reason.value))));
    case Cause::chosen:
      return named("chosen", "deleted by name");
    case Cause::not_chosen:
      return named("not_chosen", "not named");
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
  const auto add = [&](const std::vector<Explanation>& all) {
    for (const Explanation& one : all) out += (out.empty() ? "" : "; ") + one.text;
  };
  add(explanation.reasons);
  add(explanation.blockers);
  if (names_misses(decision)) add(explanation.near_misses);
  if (decision.would_be_trash) out += " (no rule keeps it)";
  return out;
}

std::string why(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                const Policy& policy) {
  return why(decision, names_misses(decision) ? explain(decision, checkpoint, checkpoints, policy)
                                              : explain_stay(decision, checkpoint, checkpoints, policy));
}

std::string why_kept(const Decision& decision, const Checkpoint& checkpoint, std::span<const Checkpoint> checkpoints,
                     const Policy& policy) {
  Decision stays = decision;
  stays.would_be_trash = false;
  return why(stays, explain_stay(stays, checkpoint, checkpoints, policy));
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
