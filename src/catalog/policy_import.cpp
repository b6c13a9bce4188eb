#include "catalog/policy_import.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "catalog/policy_flags.hpp"
#include "format/text/nearest.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

using Kind = Rule::Kind;

/// The options of one import, and the policy that grows from them.
class Import {
 public:
  explicit Import(const ForeignOptions& options) : options_(options) {}

  const std::string* find(std::string_view name) const {
    const std::string* out = nullptr;  // the last one given counts
    for (const auto& [key, value] : options_) {
      if (key == name) out = &value;
    }
    return out;
  }
  std::string text(std::string_view name, std::string fallback = {}) const {
    const std::string* value = find(name);
    return value != nullptr ? *value : fallback;
  }
  Result<bool> flag(std::string_view name, bool fallback) const {
    const std::string* value = find(name);
    if (value == nullptr) return fallback;
    if (*value == "true" || *value == "True" || *value == "1") return true;
    if (*value == "false" || *value == "False" || *value == "0") return false;
    return fail(Errc::usage, fmt::format("{}: '{}' is not a boolean", name, *value));
  }
  /// Nothing if not given, or None.
  Result<std::optional<std::uint64_t>> number(std::string_view name) const {
    const std::string* value = find(name);
    if (value == nullptr || *value == "None" || *value == "null") return std::optional<std::uint64_t>{};
    auto count = parse_count(*value, 0, UINT64_MAX);
    if (!count) return fail(Errc::usage, fmt::format("{}: {}", name, count.error().message));
    return std::optional(*count);
  }
  /// Seconds or hours for a plain number; else the given unit.
  Result<std::optional<Duration>> duration(std::string_view name, std::string_view unit) const {
    const std::string* value = find(name);
    if (value == nullptr || *value == "None") return std::optional<Duration>{};
    const bool plain = value->find_first_not_of("0123456789._") == std::string::npos;
    auto duration = parse_duration(plain ? *value + std::string(unit) : *value);
    if (!duration) return fail(Errc::usage, fmt::format("{}: {}", name, duration.error().message));
    return std::optional(*duration);
  }

  Rule& add(Rule rule) {
    rule.id = free_id(out_.policy, kind_name(rule.kind));
    out_.policy.keep.push_back(std::move(rule));
    return out_.policy.keep.back();
  }
  void count(Kind kind, std::optional<std::uint64_t> count) { add({.kind = kind, .count = count}); }
  void note(std::string difference) { out_.differences.push_back(std::move(difference)); }

  Policy& policy() { return out_.policy; }
  ImportedPolicy take() { return std::move(out_); }

 private:
  const ForeignOptions& options_;
  ImportedPolicy out_;
};

Result<> orbax(Import& in) {
  CKPT_TRY(const auto most, in.number("max_to_keep"));
  CKPT_TRY(const auto period, in.number("keep_period"));
  CKPT_TRY(const auto interval, in.duration("keep_time_interval", "s"));
  CKPT_TRY(const auto young, in.duration("latest_duration", "s"));
  CKPT_TRY(const auto closest, in.number("every_n_steps_closest"));
  CKPT_TRY(const bool unmeasured, in.flag("keep_checkpoints_without_metrics", true));
  const std::string metric = in.text("best_metric");
  if (period == 0u || closest == 0u) return fail(Errc::usage, "keep_period: an interval of 0 steps");
  if (period) in.add({.kind = Kind::every_steps, .step_interval = *period});
  if (closest) in.add({.kind = Kind::every_steps, .step_interval = *closest, .step_mode = Rule::StepMode::closest});
  if (interval) in.add({.kind = Kind::every, .duration = *interval});
  if (young) in.add({.kind = Kind::within, .duration = *young, .from = Rule::From::now});
  if (!metric.empty()) {
    in.add({.kind = Kind::best,
            .count = most,
            .metric = metric,
            .better = in.text("best_mode", "max") == "min" ? Rule::Better::lower : Rule::Better::higher,
            .missing = unmeasured ? Rule::Missing::keep : Rule::Missing::drop});
    in.note("Orbax with best_fn may delete the newest checkpoint; here the newest is always kept.");
    in.note("NaN metrics have no defined place in Orbax; here they rank last.");
  } else if (most || in.policy().keep.empty()) {
    in.count(Kind::last, most);
  }
  in.note(
      "Orbax counts the checkpoint being written and deletes during a save; here only committed ones count and saves "
      "delete nothing.");
  if (most == 0u) in.note("max_to_keep = 0 deletes everything in Orbax; here it adds no rule.");
  return {};
}

Result<> lightning(Import& in) {
  const std::string top = in.text("save_top_k", "1");
  CKPT_TRY(const auto count, parse_keep_count(top));
  const std::string metric = in.text("monitor");
  CKPT_TRY(const bool last, in.text("save_last") == "link" ? Result<bool>(true) : in.flag("save_last", false));
  if (metric.empty()) {
    if (count && *count > 1) return fail(Errc::usage, "save_top_k: more than 1 needs monitor");
    in.count(Kind::last, count);
  } else {
    in.add({.kind = Kind::best,
            .count = count,
            .metric = metric,
            .better = in.text("mode", "min") == "max" ? Rule::Better::higher : Rule::Better::lower});
    in.note("Lightning does not save a checkpoint outside the best; here it is saved, and deleted later.");
  }
  if (last) in.count(Kind::last, 1);
  in.note("Lightning writes last.ckpt as a copy or link; here the newest checkpoint is the last one, once.");
  return {};
}

Result<> hugging_face(Import& in) {
  const std::string given = in.text("save_total_limit", "None");
  const bool all = given == "None" || given.starts_with('-') || given == "0";
  CKPT_TRY(const bool best, in.flag("load_best_model_at_end", false));
  const std::string metric = in.text("metric_for_best_model", "loss");
  // Unset it depends on the name. Source: transformers/training_args.py, TrainingArguments.__post_init__.
  CKPT_TRY(const bool greater, in.flag("greater_is_better", !metric.ends_with("loss")));
  if (all) {
    in.count(Kind::last, std::nullopt);
    return {};
  }
  CKPT_TRY(const std::uint64_t limit, parse_count(given, 1, UINT64_MAX));
  if (best) {
    in.count(Kind::last, std::max<std::uint64_t>(limit - 1, 1));
    in.add({.kind = Kind::best,
            .count = 1,
            .metric = metric.starts_with("eval_") ? metric : "eval_" + metric,
            .better = greater ? Rule::Better::higher : Rule::Better::lower});
    in.note(
        "If the best checkpoint is among the newest, the Trainer keeps one more; ckpt keeps the best and the newest "
        "limit - 1, even if they overlap.");
  } else {
    in.count(Kind::last, limit);
  }
  return {};
}

Result<> tensor_flow(Import& in) {
  CKPT_TRY(const auto most, in.number("max_to_keep"));
  CKPT_TRY(const auto every, in.duration("keep_checkpoint_every_n_hours", "h"));
  if (most == 0u) return fail(Errc::usage, "max_to_keep: must be above 0, or None");
  in.count(Kind::last, in.find("max_to_keep") != nullptr ? most : std::optional<std::uint64_t>(5));
  if (every) {
    in.add({.kind = Kind::every, .duration = *every});
    in.note(
        "TensorFlow counts hours from when its manager starts and stops tracking preserved checkpoints; ckpt counts "
        "from the oldest existing checkpoint, which it keeps, and tracks all of them.");
  }
  return {};
}

Result<> megatron(Import& in) {
  CKPT_TRY(const auto interval, in.number("save_retain_interval"));
  CKPT_TRY(const auto most, in.number("most_recent_k"));
  if (interval == 0u) return fail(Errc::usage, "save_retain_interval: an interval of 0 steps");
  if (interval) {
    in.add({.kind = Kind::every_steps, .step_interval = *interval});
    in.count(Kind::last, 1);
    in.note(
        "Megatron deletes only the previous checkpoint of its tracker; ckpt also applies the policy to older ones.");
  }
  if (most || !interval) in.count(Kind::last, most);
  in.note("The checkpoint that latest_checkpointed_iteration.txt names is never deleted.");
  return {};
}

Result<> veloc(Import& in) {
  CKPT_TRY(const auto most, in.number("max_versions"));
  in.count(Kind::last, most == 0u ? std::nullopt : most);
  if (in.find("scratch_versions") != nullptr)
    in.note("scratch_versions limits copies on the nodes' own disks; here saves drain and delete these copies.");
  return {};
}

Result<> scr(Import& in) {
  CKPT_TRY(const auto most, in.number("SCR_PREFIX_SIZE"));
  in.count(Kind::last, most == 0u ? std::nullopt : most);
  Rule& output = in.add({.kind = Kind::tags_any});
  output.tags = {"output"};
  in.note("SCR never counts datasets flagged OUTPUT; here checkpoints tagged \"output\" are kept.");
  return {};
}

/// restic and borg: the calendar. A time unit has restic's letters: 2y5m7d3h.
Result<> calendar(Import& in, bool with_oldest) {
  static constexpr std::array<std::pair<const char*, Kind>, 6> rules{{{"keep-last", Kind::last},
                                                                      {"keep-hourly", Kind::hourly},
                                                                      {"keep-daily", Kind::daily},
                                                                      {"keep-weekly", Kind::weekly},
                                                                      {"keep-monthly", Kind::monthly},
                                                                      {"keep-yearly", Kind::yearly}}};
  for (const auto& [name, kind] : rules) {
    const std::string* value = in.find(name);
    if (value == nullptr) continue;
    CKPT_TRY(const auto count, parse_keep_count(*value == "unlimited" ? "-1" : *value));
    in.add({.kind = kind, .count = count, .oldest_if_short = with_oldest});
  }
  return {};
}

/// "1y5m7d2h": years of 365 days and months of 30, as no calendar is at hand.
Result<Duration> restic_duration(std::string_view text) {
  std::int64_t hours = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t unit = text.find_first_not_of("0123456789", at);
    const auto number = unit == std::string_view::npos ? Result<std::uint64_t>(fail(Errc::usage, "no unit"))
                                                       : parse_count(text.substr(at, unit - at), 0, 1'000'000);
    static constexpr std::array<std::pair<char, std::int64_t>, 5> units{
        {{'y', 8760}, {'m', 720}, {'w', 168}, {'d', 24}, {'h', 1}}};
    const auto* known =
        unit == std::string_view::npos
            ? units.end()
            : std::find_if(units.begin(), units.end(), [&](const auto& u) { return u.first == text[unit]; });
    if (!number || known == units.end())
      return fail({.code = Errc::usage, .message = fmt::format("'{}' is not a time", text), .hint = "write 1y5m7d2h"});
    hours += static_cast<std::int64_t>(*number) * known->second;
    at = unit + 1;
  }
  if (hours == 0) return fail(Errc::usage, fmt::format("'{}' is not a time above 0", text));
  return Duration(std::chrono::hours(hours));
}

Result<> restic(Import& in) {
  CKPT_CHECK(calendar(in, true));
  if (const std::string* within = in.find("keep-within")) {
    CKPT_TRY(const Duration duration, restic_duration(*within));
    in.add({.kind = Kind::within, .duration = duration});
    in.note("restic's months and years follow the calendar; here a month is 30 days and a year 365.");
  }
  if (const std::string* tag = in.find("keep-tag")) {
    Rule& rule = in.add({.kind = Kind::tags_any});
    rule.tags = {*tag};
  }
  in.note("restic groups by host and paths; here each run is a group.");
  return {};
}

Result<> borg(Import& in) {
  in.policy().exclusive = true;
  if (const std::string* within = in.find("keep-within")) {
    CKPT_TRY(const Duration duration, restic_duration(*within));
    in.add({.kind = Kind::within, .duration = duration, .from = Rule::From::now});
  }
  CKPT_CHECK(calendar(in, true));
  in.note("borg's days begin at midnight of the local time zone; here at midnight of tz (default: UTC).");
  return {};
}

struct System {
  std::string name;
  std::vector<std::string> options;
  Result<> (*read)(Import&);
};

const std::vector<System>& systems() {
  static const std::vector<System> all{
      {"orbax",
       {"max_to_keep", "keep_period", "keep_time_interval", "best_metric", "best_mode",
        "keep_checkpoints_without_metrics", "latest_duration", "every_n_steps_closest"},
       orbax},
      {"lightning", {"save_top_k", "monitor", "mode", "save_last"}, lightning},
      {"hf",
       {"save_total_limit", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"},
       hugging_face},
      {"tf", {"max_to_keep", "keep_checkpoint_every_n_hours"}, tensor_flow},
      {"megatron", {"save_retain_interval", "most_recent_k"}, megatron},
      {"veloc", {"max_versions", "scratch_versions"}, veloc},
      {"scr", {"SCR_PREFIX_SIZE"}, scr},
      {"restic",
       {"keep-last", "keep-hourly", "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly", "keep-within",
        "keep-tag"},
       restic},
      {"borg",
       {"keep-last", "keep-hourly", "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly", "keep-within"},
       borg},
  };
  return all;
}

tl::unexpected<Error> unknown(std::string_view what, std::string_view name, std::span<const std::string> known) {
  const auto near = nearest(name, known);
  return fail({.code = Errc::usage,
               .message = fmt::format("unknown {} '{}'", what, name),
               .hint = near ? fmt::format("did you mean '{}'?", *near)
                            : fmt::format("known: {}", fmt::join(known.begin(), known.end(), ", "))});
}

}  // namespace

std::span<const std::string> foreign_systems() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const System& system : systems()) out.push_back(system.name);
    return out;
  }();
  return names;
}

Result<ImportedPolicy> import_policy(std::string_view system, const ForeignOptions& options) {
  const auto found =
      std::find_if(systems().begin(), systems().end(), [&](const System& one) { return one.name == system; });
  if (found == systems().end()) return unknown("system", system, foreign_systems());
  for (const auto& [key, value] : options) {
    if (std::find(found->options.begin(), found->options.end(), key) == found->options.end())
      return unknown(fmt::format("option of {}", system), key, found->options);
  }
  Import in(options);
  CKPT_CHECK(found->read(in));
  in.policy().name = fmt::format("imported from {}", system);
  ImportedPolicy out = in.take();
  if (is_empty(out.policy)) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: these options keep nothing: refused", system),
                 .hint = "keep at least one"});
  }
  return out;
}

}  // namespace ckpt::catalog
