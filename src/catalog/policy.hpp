#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/bucket.hpp"
#include "catalog/filter.hpp"
#include "format/hash.hpp"

/// Retention policies, as values. How each rule counts: README.md. Read from TOML by policy_toml.hpp, from options by
/// policy_flags.hpp, from the options of other systems by policy_import.hpp.
namespace ckpt::catalog {

/// One keep rule: a selector, an optional filter and an optional limit.
struct Rule {
  enum class Kind : std::uint8_t {
    last,         ///< the newest `count`
    first,        ///< the oldest `count`
    every_steps,  ///< `step_interval`, `step_mode`
    every,        ///< `duration`: greedy from the oldest present, at least so far apart
    hourly,       ///< the newest of each of the newest `count` hours that hold any
    daily,
    weekly,
    monthly,
    yearly,
    within,    ///< less than `duration` old, measured from `from`
    best,      ///< the `count` best by `metric`; infinitely good values rank as NaN
    steps,     ///< those of `steps`
    tags_any,  ///< those with any of `tags`; superseded ones too
  };
  enum class StepMode : std::uint8_t {
    exact,    ///< step % interval == 0; of several saves of one step the newest generation
    spaced,   ///< greedy from the oldest present, at least `step_interval` apart
    closest,  ///< for each multiple the nearest (of two equally near the later), and the newest
  };
  enum class From : std::uint8_t { newest, now };
  enum class Better : std::uint8_t { lower, higher };
  enum class Missing : std::uint8_t { drop, keep };  ///< of a checkpoint without the metric
  enum class Nan : std::uint8_t { worst, missing };  ///< ranks last, or counts as not recorded

  std::string id{};
  Kind kind = Kind::last;
  std::optional<std::uint64_t> count{};  ///< of last, first, hourly to yearly, best; nothing = all
  std::uint64_t step_interval = 0;       ///< at least 1
  StepMode step_mode = StepMode::exact;
  Duration duration{};
  From from = From::newest;
  bool oldest_if_short = true;  ///< of hourly to yearly: while `count` is not filled the oldest is kept as well
  std::string metric{};
  Better better = Better::lower;
  Missing missing = Missing::drop;
  Nan nan = Nan::worst;
  std::vector<std::uint64_t> steps{};
  std::vector<std::string> tags{};
  std::optional<Filter> where{};
  std::optional<std::uint64_t> max{};  ///< of the selected ones, only this many newest; not with a count

  bool operator==(const Rule&) const = default;
};

bool is_calendar(Rule::Kind kind);       ///< hourly to yearly
Period period_of(Rule::Kind kind);       ///< of a calendar rule
const char* kind_name(Rule::Kind kind);  ///< "last", "every_steps", as in the policy file

/// Bytes, or a part of the volume.
struct Amount {
  std::uint64_t bytes = 0;
  std::optional<double> percent{};  ///< 0 to 100; then `bytes` is not used
  bool operator==(const Amount&) const = default;
};

inline constexpr Duration kForeignMinAge = std::chrono::minutes(10);

/// Applied after the rules. Can only add keeps, or stop the run. The floor of retain.hpp holds in any case.
struct Guard {
  std::uint64_t newest = 1;  ///< this many of a group's newest: by generation, or by step beside another tool's
  std::uint64_t newest_verified = 1;  ///< this many of a group's newest verified
  bool resume_source = true;
  Duration min_age{};
  /// Another tool's checkpoint, of which a file was written within that time, counts as unfinished: it stays, and
  /// counts for no rule.
  Duration foreign_min_age = kForeignMinAge;
  std::uint64_t min_keep = 1;
  double max_delete_fraction = 0.5;  ///< of the first run of a new or changed policy, unless approved
  bool require_verified_successor = false;
  bool operator==(const Guard&) const = default;
};

/// Only when space is short: rules that may be broken.
struct Pressure {
  std::optional<Amount> max_size{};  ///< limit for all checkpoints of this policy together
  std::optional<Amount> min_free{};  ///< space that must stay free on the volume
  std::optional<double> headroom{};  ///< times the newest checkpoint's bytes must stay free
  std::vector<std::string> relax{};  ///< ids, the first is broken first; empty = relax_order
  std::vector<std::string> never{};  ///< ids
  bool operator==(const Pressure&) const = default;
};

struct Trash {
  Duration ttl = std::chrono::hours(24);
  std::optional<Amount> purge_early_when_free_below = Amount{.percent = 5};
  std::uint64_t recycle = 0;  ///< the newest deleted sets, whose files the next save reuses
  bool operator==(const Trash&) const = default;
};

struct Policy {
  std::string name{};
  std::string runs = "*";  ///< a glob
  std::vector<Rule> keep{};
  std::vector<std::string> group_by{"run"};
  bool exclusive = false;  ///< checkpoints kept by an earlier rule do not count for later ones (borg)
  TimeZone zone{};
  std::optional<Duration> drop_optimizer_after{};
  Guard guard{};
  Pressure pressure{};
  Trash trash{};
  bool operator==(const Policy&) const = default;
};

inline constexpr std::size_t kMostRules = 64;  ///< of one policy

/// Keeps nothing by any rule: such a policy is refused, and deletes nothing. A rule with a count of 0 is not a rule.
bool is_empty(const Policy& policy);

/// Whether pressure may break rules of this kind: not best, steps and tags_any.
bool is_breakable(Rule::Kind kind);

/// The rules that pressure may break, first broken first, as indices of `keep`: those of `relax`, or else calendar
/// rules, then every, within, every_steps, first, last. Never others, nor those of `never`.
std::vector<std::size_t> relax_order(const Policy& policy);

/// The first policy whose glob matches; null: nothing of this run is ever deleted.
const Policy* policy_of(const std::vector<Policy>& policies, const std::string& run);

/// The policy in the full form of the policy file; equal policies give equal text, which parses to an equal policy.
std::string policy_text(const Policy& policy);

/// Of policy_text: an unknown one is a new or changed policy.
Hash128 fingerprint(const Policy& policy);

}  // namespace ckpt::catalog
