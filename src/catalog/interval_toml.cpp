#include "catalog/interval_toml.hpp"

#include "catalog/policy_flags.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

Result<double> parse_seconds(std::string_view text) {
  CKPT_TRY(const std::chrono::milliseconds time, parse_duration(text));
  return static_cast<double>(time.count()) / 1000;
}

/// A time in quotes; `positive`: above 0.
Result<std::optional<double>> read_time(TomlTable& table, std::string_view key, bool positive) {
  CKPT_TRY(const auto seconds, table.parsed(key, parse_seconds));
  if (seconds && positive && !(*seconds > 0)) return table.wrong(key, "expected a time above 0");
  return seconds;
}

/// "3%", or 0.03.
Result<std::optional<double>> read_part(TomlTable& table, std::string_view key) {
  const toml::node* node = table.take(key);
  if (node == nullptr) return std::optional<double>{};
  if (node->is_string()) {
    CKPT_TRY(const auto percent, table.parsed(key, parse_percent));
    if (*percent > 0) return std::optional(*percent / 100);
  } else {
    CKPT_TRY(const auto part, table.real(key));
    if (*part > 0 && *part <= 1) return part;
  }
  return table.wrong(key, "expected a share above 0, e.g. \"3%\" or 0.03");
}

}  // namespace

Result<IntervalRules> read_interval(const toml::table& source, const std::string& file, const std::string& name) {
  TomlTable table(source, file, name);
  IntervalRules out;
  IntervalPolicy& policy = out.policy;
  CKPT_TRY(const auto steps, table.integer("every_steps"));
  if (steps && *steps < 1) return table.wrong("every_steps", "expected a whole number of at least 1");
  if (steps) policy.every_steps = static_cast<std::uint64_t>(*steps);
  CKPT_TRY(policy.every_s, read_time(table, "every", true));
  CKPT_TRY(const auto optimal, table.boolean("optimal"));
  CKPT_TRY(const auto on_signal, table.boolean("on_signal"));
  CKPT_TRY(const auto at_start, table.boolean("at_start"));
  CKPT_TRY(policy.before_end_s, read_time(table, "before_end", false));
  CKPT_TRY(policy.most_overhead, read_part(table, "max_overhead"));
  CKPT_TRY(const auto least, read_time(table, "min_interval", false));
  CKPT_TRY(const auto most, read_time(table, "max_interval", true));
  CKPT_TRY(const auto hysteresis, table.real("hysteresis"));
  CKPT_TRY(const auto mtbf, read_time(table, "mtbf", true));
  CKPT_TRY(const auto restart, read_time(table, "restart", false));
  policy.optimal = optimal.value_or(false);
  policy.on_signal = on_signal.value_or(true);
  policy.at_start = at_start.value_or(false);
  policy.least_interval_s = least.value_or(policy.least_interval_s);
  policy.most_interval_s = most.value_or(policy.most_interval_s);
  if (hysteresis && !(*hysteresis >= 0 && *hysteresis <= 1))
    return table.wrong("hysteresis", "expected a number from 0 to 1");
  policy.hysteresis = hysteresis.value_or(policy.hysteresis);
  out.mtbf_s = mtbf.value_or(0);
  out.restart_s = restart.value_or(0);
  CKPT_CHECK(table.finish());
  if (policy.least_interval_s > policy.most_interval_s) return table.wrong("min_interval", "longer than max_interval");
  if (!asks(policy) && !on_signal.value_or(false))
    return fail_at(file, table.where(), name + ": no rule asks for a save",
                   "add every_steps, every, optimal or before_end");
  return out;
}

}  // namespace ckpt::catalog
