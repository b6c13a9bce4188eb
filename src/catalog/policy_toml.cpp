#include "catalog/policy_toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "catalog/interval_toml.hpp"
#include "catalog/metric_order.hpp"
#include "catalog/policy_flags.hpp"
#include "catalog/toml_table.hpp"
#include "catalog/toml_text.hpp"
#include "format/text/glob.hpp"
#include "format/text/nearest.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

using Kind = Rule::Kind;

constexpr std::array<Kind, 5> kCalendar{Kind::hourly, Kind::daily, Kind::weekly, Kind::monthly, Kind::yearly};

/// A member whose value is one of a few words.
template <class Value, std::size_t N>
Result<> read_choice(TomlTable& table, std::string_view key,
                     const std::array<std::pair<std::string_view, Value>, N>& choices, Value& out) {
  CKPT_TRY(const auto word, table.text(key));
  if (!word) return {};
  std::string list;
  for (const auto& [name, value] : choices) {
    if (name == *word) {
      out = value;
      return {};
    }
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return table.wrong(key, fmt::format("'{}' is not one of {}", *word, list));
}

Result<std::optional<std::uint64_t>> read_natural(TomlTable& table, std::string_view key, std::uint64_t least) {
  CKPT_TRY(const auto value, table.integer(key));
  if (!value) return std::optional<std::uint64_t>{};
  if (*value < 0 || static_cast<std::uint64_t>(*value) < least)
    return table.wrong(key, fmt::format("expected a whole number of at least {}", least));
  return std::optional(static_cast<std::uint64_t>(*value));
}

/// A count: -1 and "all" mean no limit.
Result<> read_count(TomlTable& table, std::string_view key, std::optional<std::uint64_t>& out) {
  const toml::node* node = table.take(key);
  if (node == nullptr) return {};
  if (node->is_string()) {
    CKPT_TRY(const auto word, table.text(key));
    auto count = parse_keep_count(*word);
    if (!count) return table.wrong(key, count.error().message);
    out = *count;
    return {};
  }
  CKPT_TRY(const auto value, table.integer(key));
  if (*value < -1) return table.wrong(key, "expected a count, or -1 for all");
  out.reset();
  if (*value >= 0) out = static_cast<std::uint64_t>(*value);
  return {};
}

/// A size in quotes or as a number of bytes, or a percentage.
Result<> read_amount(TomlTable& table, std::string_view key, std::optional<Amount>& out) {
  const toml::node* node = table.take(key);
  if (node != nullptr && node->is_integer()) {
    CKPT_TRY(const auto bytes, read_natural(table, key, 0));
    out = Amount{.bytes = *bytes};
    return {};
  }
  CKPT_TRY(const auto amount, table.parsed(key, parse_amount));
  if (amount) out = amount;
  return {};
}

Result<> read_duration(TomlTable& table, std::string_view key, Duration& out) {
  CKPT_TRY(const auto duration, table.parsed(key, parse_duration));
  if (duration) out = *duration;
  return {};
}

Result<> read_step_rule(TomlTable& table, Rule& rule) {
  CKPT_TRY(const auto interval, read_natural(table, "every_steps", 1));
  rule.step_interval = *interval;
  static constexpr std::array<std::pair<std::string_view, Rule::StepMode>, 3> modes{
      {{"exact", Rule::StepMode::exact}, {"spaced", Rule::StepMode::spaced}, {"closest", Rule::StepMode::closest}}};
  return read_choice(table, "mode", modes, rule.step_mode);
}

Result<> read_time_rule(TomlTable& table, Rule& rule) {
  CKPT_CHECK(read_duration(table, kind_name(rule.kind), rule.duration));
  if (rule.duration <= Duration{}) return table.wrong(kind_name(rule.kind), "expected a time above 0");
  if (rule.kind == Kind::within) {
    static constexpr std::array<std::pair<std::string_view, Rule::From>, 2> from{
        {{"newest", Rule::From::newest}, {"now", Rule::From::now}}};
    return read_choice(table, "relative_to", from, rule.from);
  }
  int anchor = 0;
  static constexpr std::array<std::pair<std::string_view, int>, 1> anchors{{{"oldest", 0}}};
  return read_choice(table, "anchor", anchors, anchor);
}

Result<> read_best_rule(TomlTable& table, Rule& rule) {
  CKPT_CHECK(read_count(table, "best", rule.count));
  CKPT_TRY(const auto metric, table.text("metric"));
  if (!metric || metric->empty()) return table.wrong("best", "metric = \"NAME\" is missing");
  rule.metric = *metric;
  static constexpr std::array<std::pair<std::string_view, Rule::Better>, 2> modes{
      {{"min", Rule::Better::lower}, {"max", Rule::Better::higher}}};
  static constexpr std::array<std::pair<std::string_view, Rule::Missing>, 2> missing{
      {{"drop", Rule::Missing::drop}, {"keep", Rule::Missing::keep}}};
  static constexpr std::array<std::pair<std::string_view, Rule::Nan>, 2> nan{
      {{"worst", Rule::Nan::worst}, {"missing", Rule::Nan::missing}}};
  rule.better = is_higher_better(rule.metric) ? Rule::Better::higher : Rule::Better::lower;
  CKPT_CHECK(read_choice(table, "mode", modes, rule.better));
  CKPT_CHECK(read_choice(table, "missing", missing, rule.missing));
  return read_choice(table, "nan", nan, rule.nan);
}

Result<> read_steps(TomlTable& table, Rule& rule) {
  const toml::node* node = table.take("steps");
  const toml::array* array = node == nullptr ? nullptr : node->as_array();
  if (array == nullptr) return table.wrong("steps", "expected a list of steps, e.g. [0, 1000]");
  for (const toml::node& member : *array) {
    const auto step = member.value_exact<std::int64_t>();
    if (!step || *step < 0) return fail_at(table.file(), member.source(), "steps: expected a step");
    rule.steps.push_back(static_cast<std::uint64_t>(*step));
  }
  return {};
}

/// The members of one selector of the full form.
Result<> read_selector(TomlTable& table, Rule& rule) {
  switch (rule.kind) {
    case Kind::every_steps:
      return read_step_rule(table, rule);
    case Kind::every:
    case Kind::within:
      return read_time_rule(table, rule);
    case Kind::best:
      return read_best_rule(table, rule);
    case Kind::steps:
      return read_steps(table, rule);
    case Kind::tags_any: {
      CKPT_TRY(auto tags, table.texts("tags_any"));
      rule.tags = *std::move(tags);
      return {};
    }
    default: {
      CKPT_CHECK(read_count(table, kind_name(rule.kind), rule.count));
      if (!is_calendar(rule.kind)) return {};
      CKPT_TRY(const auto oldest, table.boolean("keep_oldest_if_short"));
      if (oldest) rule.oldest_if_short = *oldest;
      return {};
    }
  }
}

/// One [[keep]] table: one selector; or the members of a calendar.
Result<> read_keep(const toml::table& source, const std::string& file, Policy& policy) {
  TomlTable table(source, file, "[[keep]]");
  std::vector<Kind> kinds;
  std::string all_kinds;
  for (int k = 0; k <= static_cast<int>(Kind::tags_any); ++k) {
    const auto kind = static_cast<Kind>(k);
    if (table.has(kind_name(kind))) {
      kinds.push_back(kind);
    } else {
      table.pass_over(kind_name(kind));  // known, for the hint about a mistyped one
    }
  }
  Rule common;
  CKPT_TRY(const auto id, table.text("id"));
  CKPT_TRY(common.where, table.parsed("where", Filter::parse));
  CKPT_TRY(common.max, read_natural(table, "max", 0));
  std::vector<Rule> rules;
  for (const Kind kind : kinds) {
    Rule rule = common;
    rule.kind = kind;
    CKPT_CHECK(read_selector(table, rule));
    if (rule.max && (rule.count || is_calendar(kind) || kind == Kind::last || kind == Kind::first))
      return table.wrong("max", fmt::format("{} is already the limit", kind_name(kind)));
    rules.push_back(std::move(rule));
  }
  CKPT_CHECK(table.finish());
  if (kinds.empty())
    return fail_at(file, table.where(), "[[keep]]: no selector", "add last, every_steps, every, daily, best, ...");
  const bool calendar = std::all_of(kinds.begin(), kinds.end(), is_calendar);
  if (kinds.size() > 1 && !calendar) {
    return fail_at(file, table.where(),
                   fmt::format("[[keep]]: {} and {} are two rules", kind_name(kinds[0]), kind_name(kinds[1])),
                   "give each its own table");
  }
  if (policy.keep.size() + rules.size() > kMostRules)
    return fail_at(file, table.where(), fmt::format("keep: more than {} rules", kMostRules), "merge similar rules");
  const auto taken = [&](const std::string& name) {
    return std::any_of(policy.keep.begin(), policy.keep.end(), [&](const Rule& rule) { return rule.id == name; });
  };
  if (id && taken(*id)) return table.wrong("id", fmt::format("'{}' is the id of an earlier rule", *id));
  const std::string wish = id ? *id : free_id(policy, kind_name(rules.front().kind));
  for (Rule& rule : rules) {
    rule.id = rules.size() == 1 ? wish : fmt::format("{}.{}", wish, kind_name(rule.kind));
    policy.keep.push_back(std::move(rule));
  }
  return {};
}

Result<> read_keep_list(TomlTable& top, const std::string& file, Policy& policy) {
  const toml::node* node = top.take("keep");
  if (node == nullptr) return {};
  const toml::array* list = node->as_array();
  if (list == nullptr) return top.wrong("keep", "expected a list of rules: keep = [ { last = 3 } ]");
  for (const toml::node& member : *list) {
    if (member.as_table() == nullptr) return fail_at(file, member.source(), "keep: expected a table: { last = 3 }");
    CKPT_CHECK(read_keep(*member.as_table(), file, policy));
  }
  return {};
}

Result<> read_header(const toml::table& source, const std::string& file, Policy& policy) {
  TomlTable table(source, file, "[policy]");
  CKPT_TRY(const auto version, table.integer("version"));
  if (version && *version != 1)
    return table.wrong("version", fmt::format("{} is not known; this build reads version 1", *version));
  CKPT_TRY(const auto name, table.text("name"));
  if (name) policy.name = *name;
  CKPT_TRY(const auto runs, table.text("runs"));
  if (runs) policy.runs = *runs;
  CKPT_TRY(auto group_by, table.texts("group_by"));
  if (group_by) policy.group_by = *std::move(group_by);
  for (const std::string& key : policy.group_by) {
    const bool known =
        key == "run" || key == "series" || std::find(kAttributes.begin(), kAttributes.end(), key) != kAttributes.end();
    if (!known)
      return table.wrong("group_by", fmt::format("unknown name '{}'", key), "known: run, series, format, kind, tier");
  }
  int order = 0;
  static constexpr std::array<std::pair<std::string_view, int>, 1> orders{{{"series, step", 0}}};
  CKPT_CHECK(read_choice(table, "order", orders, order));
  static constexpr std::array<std::pair<std::string_view, bool>, 2> counts{{{"shared", false}, {"exclusive", true}}};
  CKPT_CHECK(read_choice(table, "count", counts, policy.exclusive));
  CKPT_TRY(const auto zone, table.parsed("tz", parse_time_zone));
  if (zone) policy.zone = *zone;
  CKPT_TRY(const auto drop, table.parsed("drop_optimizer_after", parse_duration));
  if (drop) policy.drop_optimizer_after = *drop;
  return table.finish();
}

Result<> read_guard(const toml::table& source, const std::string& file, Guard& guard) {
  TomlTable table(source, file, "[guard]");
  CKPT_TRY(const auto newest, read_natural(table, "newest", 0));
  CKPT_TRY(const auto verified, read_natural(table, "newest_verified", 0));
  CKPT_TRY(const auto min_keep, read_natural(table, "min_keep", 0));
  CKPT_TRY(const auto resume, table.boolean("resume_source"));
  CKPT_TRY(const auto successor, table.boolean("require_verified_successor"));
  guard.newest = newest.value_or(guard.newest);
  guard.newest_verified = verified.value_or(guard.newest_verified);
  guard.min_keep = min_keep.value_or(guard.min_keep);
  guard.resume_source = resume.value_or(guard.resume_source);
  guard.require_verified_successor = successor.value_or(guard.require_verified_successor);
  CKPT_CHECK(read_duration(table, "min_age", guard.min_age));
  CKPT_CHECK(read_duration(table, "foreign_min_age", guard.foreign_min_age));
  const toml::node* fraction = table.take("max_delete_fraction");
  if (fraction != nullptr && fraction->is_string()) {
    CKPT_TRY(const auto percent, table.parsed("max_delete_fraction", parse_percent));
    guard.max_delete_fraction = *percent / 100;
  } else if (fraction != nullptr) {
    CKPT_TRY(const auto value, table.real("max_delete_fraction"));
    if (!(*value >= 0 && *value <= 1)) return table.wrong("max_delete_fraction", "expected a number from 0 to 1");
    guard.max_delete_fraction = *value;
  }
  return table.finish();
}

/// "2.0 x last_size".
Result<double> parse_headroom(std::string_view text) {
  const std::string_view tail = " x last_size";
  if (text.ends_with(tail)) {
    CKPT_TRY(const double percent, parse_percent(std::string(text.substr(0, text.size() - tail.size())) + "%"));
    return percent;
  }
  return fail({.code = Errc::usage,
               .message = fmt::format("'{}' is not a headroom", text),
               .hint = "write \"2.0 x last_size\""});
}

Result<> read_rule_ids(TomlTable& table, std::string_view key, const Policy& policy, std::vector<std::string>& out) {
  CKPT_TRY(auto ids, table.texts(key));
  if (!ids) return {};
  std::vector<std::string> known;
  for (const Rule& rule : policy.keep) known.push_back(rule.id);
  for (const std::string& id : *ids) {
    std::vector<std::string> meant;  // the rule, or the members of a calendar table
    for (const std::string& rule : known) {
      const bool member = rule.starts_with(id + ".") && std::any_of(kCalendar.begin(), kCalendar.end(), [&](Kind kind) {
                            return rule == id + "." + kind_name(kind);
                          });
      if (rule == id || member) meant.push_back(rule);
    }
    if (meant.empty()) {
      const auto near = nearest(id, known);
      return table.wrong(key, fmt::format("no rule has the id '{}'", id),
                         near ? fmt::format("did you mean '{}'?", *near) : std::string());
    }
    out.insert(out.end(), meant.begin(), meant.end());
  }
  return {};
}

/// Rules that are never broken cannot be named as those to break.
Result<> check_relax(const TomlTable& table, const Policy& policy) {
  for (const std::string& id : policy.pressure.relax) {
    const auto rule = std::ranges::find(policy.keep, id, &Rule::id);
    if (!is_breakable(rule->kind)) {
      return table.wrong("relax",
                         fmt::format("rule '{}' cannot be relaxed, because no {} rule can", id, kind_name(rule->kind)));
    }
    if (std::ranges::count(policy.pressure.never, id) != 0)
      return table.wrong("relax", fmt::format("rule '{}' is also listed in 'never'", id));
  }
  return {};
}

Result<> read_pressure(const toml::table& source, const std::string& file, Policy& policy) {
  TomlTable table(source, file, "[pressure]");
  CKPT_CHECK(read_amount(table, "max_size", policy.pressure.max_size));
  CKPT_CHECK(read_amount(table, "min_free", policy.pressure.min_free));
  CKPT_TRY(policy.pressure.headroom, table.parsed("headroom", parse_headroom));
  CKPT_CHECK(read_rule_ids(table, "relax", policy, policy.pressure.relax));
  CKPT_CHECK(read_rule_ids(table, "never", policy, policy.pressure.never));
  CKPT_CHECK(check_relax(table, policy));
  return table.finish();
}

Result<> read_trash(const toml::table& source, const std::string& file, Trash& trash) {
  TomlTable table(source, file, "[trash]");
  CKPT_CHECK(read_duration(table, "ttl", trash.ttl));
  CKPT_CHECK(read_amount(table, "purge_early_when_free_below", trash.purge_early_when_free_below));
  CKPT_TRY(const auto recycle, read_natural(table, "recycle", 0));
  trash.recycle = recycle.value_or(0);
  return table.finish();
}

/// `best` of the short form: { metric = "loss", n = 2, lower = true }.
Result<> read_short_best(const toml::table& source, const std::string& file, Rule& rule) {
  TomlTable table(source, file, "best");
  CKPT_TRY(const auto metric, table.text("metric"));
  if (!metric || metric->empty()) return fail_at(file, table.where(), "best: metric = \"NAME\" is missing");
  rule.metric = *metric;
  rule.count = 1;
  CKPT_CHECK(read_count(table, "n", rule.count));
  CKPT_TRY(const auto lower, table.boolean("lower"));
  rule.better = lower.value_or(!is_higher_better(*metric)) ? Rule::Better::lower : Rule::Better::higher;
  return table.finish();
}

/// `keep` of the short form: every member is a rule.
Result<> read_short_keep(const toml::table& source, const std::string& file, Policy& policy) {
  TomlTable table(source, file, "keep");
  for (int k = 0; k <= static_cast<int>(Kind::tags_any); ++k) {
    Rule rule{.id = kind_name(static_cast<Kind>(k)), .kind = static_cast<Kind>(k)};
    if (!table.has(rule.id)) {
      table.pass_over(rule.id);
      continue;
    }
    if (rule.kind == Kind::best) {
      CKPT_TRY(const toml::table* best, table.table("best"));
      CKPT_CHECK(read_short_best(*best, file, rule));
    } else {
      CKPT_CHECK(read_selector(table, rule));
    }
    policy.keep.push_back(std::move(rule));
  }
  return table.finish();
}

/// Adds its policy to the file's. If it only says when to save, it decides nothing about retention.
Result<> read_short_rule(const toml::table& source, const std::string& file, const Policy& defaults, PolicyFile& out) {
  TomlTable table(source, file, "[[rule]]");
  Policy policy = defaults;
  CKPT_TRY(const auto runs, table.text("runs"));
  if (!runs) return fail_at(file, table.where(), "[[rule]]: runs = \"GLOB\" is missing");
  policy.runs = policy.name = *runs;
  CKPT_TRY(const toml::table* keep, table.table("keep"));
  if (keep != nullptr) CKPT_CHECK(read_short_keep(*keep, file, policy));
  CKPT_TRY(policy.drop_optimizer_after, table.parsed("drop_optimizer_after", parse_duration));
  CKPT_CHECK(read_amount(table, "max_size", policy.pressure.max_size));
  CKPT_CHECK(read_amount(table, "min_free", policy.pressure.min_free));
  CKPT_TRY(const toml::table* interval, table.table("interval"));
  CKPT_CHECK(table.finish());
  if (interval != nullptr) {
    CKPT_TRY(IntervalRules rules, read_interval(*interval, file, "interval of [[rule]]"));
    out.run_intervals.push_back({.runs = *runs, .rules = rules});
  }
  const bool limit = policy.pressure.max_size || policy.pressure.min_free;
  if (keep == nullptr && (limit || policy.drop_optimizer_after))
    policy.keep.push_back({.id = "last", .kind = Kind::last});  // all of them, as far as there is space
  if (keep != nullptr || !policy.keep.empty() || interval == nullptr) out.policies.push_back(std::move(policy));
  return {};
}

constexpr std::ptrdiff_t kMostDots = 1000;

/// The first line with more dots than any key needs: each is a level at which the parser would call itself.
std::optional<std::size_t> line_of_many_parts(std::string_view text) {
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (std::ranges::count(text.substr(0, end), '.') > kMostDots) return line;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

}  // namespace

Result<PolicyFile> parse_policy_file(std::string_view text, const std::string& file,
                                     const std::vector<std::string>& other_keys) {
  if (const auto stray = stray_character(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*stray), '\n');
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: line {}: non-ASCII character; write \\uXXXX in strings", file, line),
                 .file = file});
  }
  if (const auto deep = line_of_many_parts(text)) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: line {}: more than {} dots", file, *deep, kMostDots),
                 .file = file});
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return fail_at(file, parsed.error().source(), std::string(parsed.error().description()));
  TomlTable top(parsed.table(), file, "the file");
  for (const std::string& key : other_keys) top.pass_over(key);
  Policy base;
  CKPT_CHECK(read_keep_list(top, file, base));
  CKPT_TRY(const toml::table* guard, top.table("guard"));
  if (guard != nullptr) CKPT_CHECK(read_guard(*guard, file, base.guard));
  CKPT_TRY(const toml::table* trash, top.table("trash"));
  if (trash != nullptr) CKPT_CHECK(read_trash(*trash, file, base.trash));
  CKPT_TRY(const toml::table* header, top.table("policy"));
  if (header != nullptr) CKPT_CHECK(read_header(*header, file, base));
  CKPT_TRY(const toml::table* pressure, top.table("pressure"));
  if (pressure != nullptr) CKPT_CHECK(read_pressure(*pressure, file, base));
  const toml::node* rules = top.take("rule");
  PolicyFile whole;
  CKPT_TRY(const toml::table* interval, top.table("interval"));
  if (interval != nullptr) {
    CKPT_TRY(whole.interval, read_interval(*interval, file));
  }
  CKPT_CHECK(top.finish());

  const bool full_form = !base.keep.empty() || header != nullptr || pressure != nullptr;
  const toml::array* list = rules == nullptr ? nullptr : rules->as_array();
  if (rules != nullptr && list == nullptr) return top.wrong("rule", "write [[rule]]");
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const toml::node& member = (*list)[i];
    if (member.as_table() == nullptr) return fail_at(file, member.source(), "rule: expected a table");
    CKPT_CHECK(read_short_rule(*member.as_table(), file, full_form ? Policy() : base, whole));
  }
  if (full_form && !whole.policies.empty())
    return top.wrong("rule", "[[rule]] cannot be combined with keep, [policy] or [pressure]");
  if (full_form) whole.policies.push_back(std::move(base));
  return whole;
}

const IntervalRules* interval_of(const PolicyFile& file, const std::string& run) {
  for (const RunInterval& one : file.run_intervals)
    if (matches_glob(run, one.runs)) return &one.rules;
  return file.interval ? &*file.interval : nullptr;
}

Result<std::vector<Policy>> parse_policies(std::string_view text, const std::string& file,
                                           const std::vector<std::string>& other_keys) {
  CKPT_TRY(PolicyFile whole, parse_policy_file(text, file, other_keys));
  return std::move(whole.policies);
}

}  // namespace ckpt::catalog
