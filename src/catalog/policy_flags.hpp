#pragma once

#include <span>
#include <string>
#include <string_view>

#include "catalog/policy.hpp"

/// Policies in one line, for the command line; and the values that policy files share with it.
namespace ckpt::catalog {

/// The flags of add_flag, without dashes.
std::span<const std::string> policy_flags();

/// Adds one option:
///   keep  last=3,6h*8,1d*14    rules after commas: KIND=VALUE, or a time (`every`); *N = at most N
///   keep-last N | keep-first N | keep-every STEPS | keep-within 2d | keep-hourly N ... keep-yearly N
///   keep-best METRIC:N[:max] | keep-tag TAG | max-size 20T | min-free 10% | max-delete 50% | grace 24h
/// A count is a whole number, or "all". Rules get their kind as id; a second one of a kind "last#2".
/// errors   usage, naming the option and the problem
Result<> add_flag(Policy& policy, std::string_view flag, std::string_view value);

/// "all" and "-1" mean no limit.
Result<std::optional<std::uint64_t>> parse_keep_count(std::string_view text);
/// A size, or "10%".
Result<Amount> parse_amount(std::string_view text);
/// "50%" -> 50; 0 to 100.
Result<double> parse_percent(std::string_view text);

/// Gives a rule an id that no other one of the policy has: `wish`, else "wish#2", ...
std::string free_id(const Policy& policy, const std::string& wish);

}  // namespace ckpt::catalog
