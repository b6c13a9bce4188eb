#include "catalog/policy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "format/text/glob.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::array<const char*, 13> kKindNames{"last",  "first",  "every_steps", "every",  "hourly",
                                                 "daily", "weekly", "monthly",     "yearly", "within",
                                                 "best",  "steps",  "tags_any"};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

std::string duration_value(Duration duration) {
  return duration.count() % 1000 == 0 ? fmt::format("\"{}s\"", duration.count() / 1000)
                                      : fmt::format("\"{}ms\"", duration.count());
}

std::string amount_value(const Amount& amount) {
  return amount.percent ? fmt::format("\"{}%\"", *amount.percent) : fmt::format("\"{}B\"", amount.bytes);
}

std::string count_value(const std::optional<std::uint64_t>& count) {
  return count ? fmt::format("{}", *count) : "-1";
}

std::string list_value(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  out.reserve(words.size());
  for (const std::string& word : words) out.push_back(quoted(word));
  return fmt::format("[{}]", fmt::join(out, ", "));
}

std::string rule_text(const Rule& rule) {
  std::string out = fmt::format("[[keep]]\nid = {}\n{} = ", quoted(rule.id), kind_name(rule.kind));
  switch (rule.kind) {
    case Rule::Kind::last:
    case Rule::Kind::first:
      out += count_value(rule.count);
      break;
    case Rule::Kind::every_steps: {
      static constexpr std::array<const char*, 3> modes{"exact", "spaced", "closest"};
      out += fmt::format("{}\nmode = \"{}\"", rule.step_interval, modes[static_cast<std::size_t>(rule.step_mode)]);
      break;
    }
    case Rule::Kind::every:
      out += duration_value(rule.duration) + "\nanchor = \"oldest\"";
      break;
    case Rule::Kind::hourly:
    case Rule::Kind::daily:
    case Rule::Kind::weekly:
    case Rule::Kind::monthly:
    case Rule::Kind::yearly:
      out += fmt::format("{}\nkeep_oldest_if_short = {}", count_value(rule.count), rule.oldest_if_short);
      break;
    case Rule::Kind::within:
      out += fmt::format("{}\nrelative_to = \"{}\"", duration_value(rule.duration),
                         rule.from == Rule::From::now ? "now" : "newest");
      break;
    case Rule::Kind::best:
      out += fmt::format("{}\nmetric = {}\nmode = \"{}\"\nmissing = \"{}\"\nnan = \"{}\"", count_value(rule.count),
                         quoted(rule.metric), rule.better == Rule::Better::lower ? "min" : "max",
                         rule.missing == Rule::Missing::keep ? "keep" : "drop",
                         rule.nan == Rule::Nan::worst ? "worst" : "missing");
      break;
    case Rule::Kind::steps:
      out += fmt::format("[{}]", fmt::join(rule.steps, ", "));
      break;
    case Rule::Kind::tags_any:
      out += list_value(rule.tags);
      break;
  }
  out += "\n";
  if (rule.where) out += fmt::format("where = {}\n", quoted(rule.where->text()));
  if (rule.max) out += fmt::format("max = {}\n", *rule.max);
  return out + "\n";
}

bool keeps_nothing(const Rule& rule) {
  if (rule.max == 0u) return true;
  switch (rule.kind) {
    case Rule::Kind::within:
      return rule.duration <= Duration{};
    case Rule::Kind::steps:
      return rule.steps.empty();
    case Rule::Kind::tags_any:
      return rule.tags.empty();
    case Rule::Kind::best:
      return rule.count == 0u && rule.missing == Rule::Missing::drop;
    default:
      return rule.count == 0u;
  }
}

/// Which kinds go first under pressure; higher goes first, 0 never.
int breakable(Rule::Kind kind) {
  switch (kind) {
    case Rule::Kind::every:
      return 5;
    case Rule::Kind::within:
      return 4;
    case Rule::Kind::every_steps:
      return 3;
    case Rule::Kind::first:
      return 2;
    case Rule::Kind::last:
      return 1;
    case Rule::Kind::best:
    case Rule::Kind::steps:
    case Rule::Kind::tags_any:
      return 0;
    default:
      return 6;
  }
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

bool is_calendar(Rule::Kind kind) {
  return kind >= Rule::Kind::hourly && kind <= Rule::Kind::yearly;
}

Period period_of(Rule::Kind kind) {
  return static_cast<Period>(static_cast<int>(kind) - static_cast<int>(Rule::Kind::hourly));
}

const char* kind_name(Rule::Kind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

bool is_empty(const Policy& policy) {
  return std::all_of(policy.keep.begin(), policy.keep.end(), keeps_nothing);
}

bool is_breakable(Rule::Kind kind) {
  return breakable(kind) != 0;
}

std::vector<std::size_t> relax_order(const Policy& policy) {
  std::vector<std::size_t> out;
  const auto add = [&](std::size_t index) {
    const Rule& rule = policy.keep[index];
    if (breakable(rule.kind) != 0 && !contains(policy.pressure.never, rule.id)) out.push_back(index);
  };
  if (!policy.pressure.relax.empty()) {
    for (const std::string& id : policy.pressure.relax) {
      for (std::size_t i = 0; i < policy.keep.size(); ++i) {
        if (policy.keep[i].id == id) add(i);
      }
    }
    return out;
  }
  for (std::size_t i = 0; i < policy.keep.size(); ++i) add(i);
  std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) {
    return breakable(policy.keep[a].kind) > breakable(policy.keep[b].kind);
  });
  return out;
}

const Policy* policy_of(const std::vector<Policy>& policies, const std::string& run) {
  const auto found =
      std::find_if(policies.begin(), policies.end(), [&](const Policy& p) { return matches_glob(run, p.runs); });
  return found == policies.end() ? nullptr : &*found;
}

std::string policy_text(const Policy& policy) {
  std::string out;
  for (const Rule& rule : policy.keep) out += rule_text(rule);
  out += fmt::format("[policy]\nversion = 1\nname = {}\nruns = {}\ngroup_by = {}\norder = \"series, step\"\n",
                     quoted(policy.name), quoted(policy.runs), list_value(policy.group_by));
  out += fmt::format("count = \"{}\"\ntz = \"{}\"\n", policy.exclusive ? "exclusive" : "shared",
                     time_zone_text(policy.zone));
  if (policy.drop_optimizer_after)
    out += fmt::format("drop_optimizer_after = {}\n", duration_value(*policy.drop_optimizer_after));
  const Guard& guard = policy.guard;
  out += fmt::format(
      "\n[guard]\nnewest = {}\nnewest_verified = {}\nresume_source = {}\nmin_age = {}\nmin_keep = {}\n"
      "max_delete_fraction = {}\nrequire_verified_successor = {}\n",
      guard.newest, guard.newest_verified, guard.resume_source, duration_value(guard.min_age), guard.min_keep,
      guard.max_delete_fraction, guard.require_verified_successor);
  // Stores that do not name it have policies of the same fingerprint as before there was such a key.
  if (guard.foreign_min_age != kForeignMinAge)
    out += fmt::format("foreign_min_age = {}\n", duration_value(guard.foreign_min_age));
  const Pressure& pressure = policy.pressure;
  out += "\n[pressure]\n";
  if (pressure.max_size) out += fmt::format("max_size = {}\n", amount_value(*pressure.max_size));
  if (pressure.min_free) out += fmt::format("min_free = {}\n", amount_value(*pressure.min_free));
  if (pressure.headroom) out += fmt::format("headroom = \"{} x last_size\"\n", *pressure.headroom);
  out += fmt::format("relax = {}\nnever = {}\n", list_value(pressure.relax), list_value(pressure.never));
  out += fmt::format("\n[trash]\nttl = {}\n", duration_value(policy.trash.ttl));
  if (policy.trash.purge_early_when_free_below) {
    out += fmt::format("purge_early_when_free_below = {}\n", amount_value(*policy.trash.purge_early_when_free_below));
  }
  return out + fmt::format("recycle = {}\n", policy.trash.recycle);
}

Hash128 fingerprint(const Policy& policy) {
  return hash128(policy_text(policy));
}

}  // namespace ckpt::catalog
