#include "catalog/policy_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "catalog/metric_order.hpp"
#include "format/text/error_context.hpp"
#include "format/text/nearest.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

const std::array<std::string, 18> kFlags{
    "keep",       "keep-last",   "keep-first",   "keep-every",  "keep-within",       "keep-hourly",
    "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly", "keep-best",         "keep-tag",
    "max-size",   "min-free",    "max-delete",   "grace",       "purge-early-below", "foreign-min-age"};

const std::array<std::string, 13> kKinds{"last",    "first",  "every_steps", "every", "hourly", "daily", "weekly",
                                         "monthly", "yearly", "within",      "best",  "steps",  "tag"};

std::optional<Rule::Kind> kind_of(std::string_view name) {
  const auto* found = std::find(kKinds.begin(), kKinds.end(), name);
  if (found == kKinds.end()) return std::nullopt;
  return static_cast<Rule::Kind>(found - kKinds.begin());
}

Result<std::chrono::milliseconds> positive_duration(std::string_view text) {
  CKPT_TRY(const Duration duration, parse_duration(text));
  if (duration <= Duration{}) return fail(Errc::usage, fmt::format("'{}' is not a time above 0", text));
  return duration;
}

/// "loss:3", "loss:3:max", "loss" (1).
Result<> read_best(Rule& rule, std::string_view text) {
  rule.count = 1;
  std::string_view name = text;
  std::optional<bool> is_higher;
  for (const std::string_view mode : {":min", ":max"}) {
    if (!name.ends_with(mode)) continue;
    is_higher = mode == ":max";
    name.remove_suffix(4);
    break;
  }
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    CKPT_TRY(rule.count, parse_keep_count(name.substr(colon + 1)));
    name = name.substr(0, colon);
  }
  if (name.empty()) return fail(Errc::usage, fmt::format("'{}' lacks a metric, e.g. loss:3", text));
  rule.metric = name;
  rule.better = is_higher.value_or(is_higher_better(name)) ? Rule::Better::higher : Rule::Better::lower;
  return {};
}

Result<Rule> read_rule(Rule::Kind kind, std::string_view value) {
  Rule rule{.kind = kind};
  switch (kind) {
    case Rule::Kind::every_steps: {
      CKPT_TRY(rule.step_interval, parse_count(value, 1, UINT64_MAX));
      break;
    }
    case Rule::Kind::every:
    case Rule::Kind::within: {
      CKPT_TRY(rule.duration, positive_duration(value));
      break;
    }
    case Rule::Kind::best:
      CKPT_CHECK(read_best(rule, value));
      break;
    case Rule::Kind::steps: {
      CKPT_TRY(const std::uint64_t step, parse_count(value, 0, UINT64_MAX));
      rule.steps.push_back(step);
      break;
    }
    case Rule::Kind::tags_any:
      if (value.empty()) return fail(Errc::usage, "expected a tag");
      rule.tags.emplace_back(value);
      break;
    default: {
      CKPT_TRY(rule.count, parse_keep_count(value));
      break;
    }
  }
  return rule;
}

void add_rule(Policy& policy, Rule rule) {
  // Past the limit the names do not matter: retain refuses the policy.
  rule.id = policy.keep.size() < kMostRules ? free_id(policy, kind_name(rule.kind)) : std::string(kind_name(rule.kind));
  policy.keep.push_back(std::move(rule));
}

/// One member of `keep`.
Result<> add_word(Policy& policy, std::string_view word) {
  std::string_view body = word;
  std::optional<std::uint64_t> max;
  if (const std::size_t star = word.rfind('*'); star != std::string_view::npos) {
    CKPT_TRY(max, parse_keep_count(word.substr(star + 1)));
    body = word.substr(0, star);
  }
  const std::size_t sign = body.find('=');
  const bool time = sign == std::string_view::npos;
  const std::string_view name = time ? std::string_view("every") : body.substr(0, sign);
  const auto kind = kind_of(name);
  if (!kind) {
    const auto near = nearest(name, kKinds);
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}': unknown rule '{}'", word, name),
                 .hint = near ? fmt::format("did you mean '{}'?", *near) : "write last=3,6h*8,1d*14"});
  }
  CKPT_TRY(Rule rule, read_rule(*kind, time ? body : body.substr(sign + 1)));
  if (max && rule.count)
    return fail(Errc::usage, fmt::format("'{}': the count is already the limit; omit *{}", word, *max));
  rule.max = max;
  add_rule(policy, std::move(rule));
  return {};
}

Result<> add_known_flag(Policy& policy, std::string_view flag, std::string_view value) {
  if (flag == "keep") {
    std::size_t begin = 0;
    while (begin <= value.size()) {
      const std::size_t end = std::min(value.find(',', begin), value.size());
      CKPT_CHECK(add_word(policy, value.substr(begin, end - begin)));
      begin = end + 1;
    }
    return {};
  }
  if (flag == "max-size") {
    CKPT_TRY(policy.pressure.max_size, parse_amount(value));
  } else if (flag == "min-free") {
    CKPT_TRY(policy.pressure.min_free, parse_amount(value));
  } else if (flag == "max-delete") {
    CKPT_TRY(const double percent, parse_percent(value));
    policy.guard.max_delete_fraction = percent / 100;
  } else if (flag == "grace") {
    CKPT_TRY(policy.trash.ttl, parse_duration(value));
  } else if (flag == "foreign-min-age") {
    CKPT_TRY(policy.guard.foreign_min_age, parse_duration(value));
  } else if (flag == "purge-early-below") {
    CKPT_TRY(policy.trash.purge_early_when_free_below, parse_amount(value));
  } else {
    const std::string_view name = flag.substr(5);
    CKPT_TRY(Rule rule, read_rule(name == "every" ? Rule::Kind::every_steps : *kind_of(name), value));
    add_rule(policy, std::move(rule));
  }
  return {};
}

}  // namespace

std::span<const std::string> policy_flags() {
  return kFlags;
}

Result<> add_flag(Policy& policy, std::string_view flag, std::string_view value) {
  if (std::find(kFlags.begin(), kFlags.end(), flag) == kFlags.end()) {
    const auto near = nearest(flag, kFlags);
    return fail({.code = Errc::usage,
                 .message = fmt::format("--{}: unknown policy option", flag),
                 .hint = near ? fmt::format("did you mean --{}?", *near) : std::string()});
  }
  auto added = add_known_flag(policy, flag, value);
  if (!added) return fail(with_context(std::move(added).error(), fmt::format("--{}", flag)));
  return {};
}

Result<std::optional<std::uint64_t>> parse_keep_count(std::string_view text) {
  if (text == "all" || text == "-1") return std::optional<std::uint64_t>{};
  CKPT_TRY(const std::uint64_t count, parse_count(text, 0, UINT64_MAX));
  return std::optional<std::uint64_t>{count};
}

Result<double> parse_percent(std::string_view text) {
  double percent = 0;
  const char* end = text.data() + text.size();
  const auto read = text.ends_with('%') ? std::from_chars(text.data(), end - 1, percent, std::chars_format::fixed)
                                        : std::from_chars_result{text.data(), std::errc::invalid_argument};
  if (read.ec != std::errc() || read.ptr != end - 1 || !(percent >= 0 && percent <= 100)) {
    return fail({.code = Errc::usage, .message = fmt::format("'{}' is not a percentage", text), .hint = "write 50%"});
  }
  return percent;
}

Result<Amount> parse_amount(std::string_view text) {
  if (text.ends_with('%')) {
    CKPT_TRY(const double percent, parse_percent(text));
    return Amount{.percent = percent};
  }
  CKPT_TRY(const std::uint64_t bytes, parse_size(text));
  return Amount{.bytes = bytes};
}

std::string free_id(const Policy& policy, const std::string& wish) {
  const auto taken = [&](const std::string& id) {
    return std::any_of(policy.keep.begin(), policy.keep.end(), [&](const Rule& rule) { return rule.id == id; });
  };
  std::string id = wish;
  for (int n = 2; taken(id); ++n) id = fmt::format("{}#{}", wish, n);
  return id;
}

}  // namespace ckpt::catalog
