#include "api/prune_policies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "catalog/policy_flags.hpp"
#include "catalog/policy_toml.hpp"
#include "engine/io/replace_file.hpp"
#include "format/model/value.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kFormat = "ckpt.policies/1";

bool is_rule(const std::string& flag) {
  return flag.starts_with("keep");
}

std::string known_path(const std::string& store) {
  return join_path(join_path(store, ".ckpt"), "policies.json");
}

Result<Policies> from_file(Io& io, const std::string& store, const PolicyWords& words) {
  const std::string path = words.file.empty() ? join_path(store, kPolicyFile) : words.file;
  auto read = read_policy_file(io, path);
  if (!read) {
    Error error = std::move(read).error();
    if (error.code == Errc::not_found) {
      error.hint = "create it with 'ckpt policy init', or give rules, e.g. --keep-last 3";
    }
    return fail(std::move(error));
  }
  Policies out{.source = words.file.empty() ? std::string(kPolicyFile) : words.file};
  out.policies = std::move(read->policies);
  out.run_intervals = std::move(read->run_intervals);
  out.interval = std::move(read->interval);
  if (out.policies.empty()) return fail(Errc::usage, path + ": contains no policy");
  return out;
}

/// The strings of an array.
std::vector<std::string> texts_of(const json::Value& value) {
  std::vector<std::string> out;
  if (value.array() == nullptr) return out;
  for (const json::Value& one : *value.array()) {
    if (one.text() != nullptr) out.push_back(*one.text());
  }
  return out;
}

/// The file of known policies must stay short enough to be read.
bool is_recorded(const AppliedPolicies& applied) {
  std::uint64_t bytes = 0;
  for (const std::string& text : applied.policies) {
    if (!is_utf8(text)) return false;
    bytes += text.size();
  }
  return is_utf8(applied.source) && bytes <= kMostPolicyBytes / 8;
}

}  // namespace

std::map<std::string, std::string> nearer_policies(Io& io, const std::string& store,
                                                   std::span<const catalog::Entry> entries) {
  std::map<std::string, std::string> all;  // of all runs
  for (const catalog::Entry& entry : entries) {
    const std::string& run = entry.checkpoint.run;
    const auto [found, is_new] = all.try_emplace(run);
    std::string_view at = run == "." || !is_new ? std::string_view() : std::string_view(run);
    while (!at.empty() && found->second.empty()) {
      std::string directory = join_path(store, at);
      const auto file = io.stat(join_path(directory, kPolicyFile));
      if (file && file->kind == FileInfo::Kind::file) found->second = std::move(directory);
      const std::size_t slash = at.rfind('/');
      at = at.substr(0, slash == std::string_view::npos ? 0 : slash);
    }
  }
  std::erase_if(all, [](const auto& one) { return one.second.empty(); });
  return all;
}

Result<catalog::PolicyFile> read_policy_file(Io& io, const std::string& path) {
  CKPT_TRY(const std::string text, read_small_file(io, path, kMostPolicyBytes));
  return catalog::parse_policy_file(text, path);
}

Result<Policies> read_policies(Io& io, const std::string& store, const PolicyWords& words) {
  const bool rules =
      std::any_of(words.flags.begin(), words.flags.end(), [](const auto& f) { return is_rule(f.first); });
  const bool imports = !words.import_system.empty();
  if (rules && imports)
    return fail(Errc::usage, "--import-policy and rules such as --keep-last cannot be used together");
  if ((rules || imports) && !words.file.empty()) {
    return fail(Errc::usage, "--policy and rules on the command line cannot be used together");
  }
  Policies out;
  if (imports) {
    CKPT_TRY(auto imported, catalog::import_policy(words.import_system, words.import_options));
    out.source = "--import-policy " + words.import_system;
    out.differences = std::move(imported.differences);
    out.policies.push_back(std::move(imported.policy));
  } else if (rules) {
    out.source = "the command line";
    out.policies.emplace_back();
  } else {
    CKPT_TRY(out, from_file(io, store, words));
  }
  out.replaces_file = (imports || rules) && io.stat(join_path(store, kPolicyFile)).has_value();
  for (catalog::Policy& policy : out.policies) {
    for (const auto& [flag, value] : words.flags) CKPT_CHECK(catalog::add_flag(policy, flag, value));
    if (!catalog::is_empty(policy)) continue;
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: the policy keeps nothing and would delete everything", out.source),
                 .hint = "keep at least one, e.g. --keep-last 3"});
  }
  return out;
}

Result<Policies> read_removal_policies(Io& io, const std::string& store) {
  auto read = read_policies(io, store, {});
  if (!read && read.error().code != Errc::not_found) return read;
  Policies out{.source = "ckpt rm"};
  if (read) out.policies = std::move(read->policies);
  out.policies.emplace_back();
  for (catalog::Policy& policy : out.policies) {
    policy.name.clear();
    policy.keep = {{.id = "all", .kind = catalog::Rule::Kind::last}};
    policy.drop_optimizer_after.reset();
    policy.pressure = {};
    policy.trash.recycle = 0;
  }
  return out;
}

Result<std::optional<catalog::IntervalRules>> read_store_interval(Io& io, const std::string& store,
                                                                  const std::string& run) {
  const auto whole = read_policy_file(io, join_path(store, kPolicyFile));
  if (!whole && whole.error().code == Errc::not_found) return std::optional<catalog::IntervalRules>();
  if (!whole) return fail(whole.error());
  const catalog::IntervalRules* rules = interval_of(*whole, run);
  return rules == nullptr ? std::nullopt : std::optional(*rules);
}

std::string run_in_store(const std::string& store, const std::string& run_directory) {
  const std::string directory = join_path(run_directory, "");
  const std::string root = join_path(store, "");
  if (root == "." && !directory.starts_with('/')) return directory;
  const std::string above = root + "/";
  return directory.starts_with(above) ? directory.substr(above.size()) : base_name(directory);
}

KnownPolicies read_known_policies(Io& io, const std::string& store) {
  KnownPolicies out;
  const auto text = read_small_file(io, known_path(store), kMostPolicyBytes);
  if (!text) return out;
  const auto root = json::parse(*text, {.max_bytes = kMostPolicyBytes});
  if (!root) return out;
  const json::Value* format = root->find("format");
  const json::Value* sources = root->find("sources");
  const bool ours = format != nullptr && format->text() != nullptr && *format->text() == kFormat;
  if (!ours || sources == nullptr || sources->object() == nullptr) return out;
  for (const auto& [source, value] : *sources->object()) out.fingerprints[source] = texts_of(value);
  const json::Value* last = root->find("last");
  const json::Value* source = last == nullptr ? nullptr : last->find("source");
  const json::Value* policies = last == nullptr ? nullptr : last->find("policies");
  if (source != nullptr && source->text() != nullptr && policies != nullptr)
    out.last = AppliedPolicies{.source = *source->text(), .policies = texts_of(*policies)};
  return out;
}

Result<> write_known_policies(Io& io, const std::string& store, const KnownPolicies& known) {
  std::string text;
  json::Writer out(text);
  out.begin_object().member("format", kFormat).key("sources").begin_object();
  for (const auto& [source, fingerprints] : known.fingerprints) {
    if (is_utf8(source)) out.line("\n ").member(source, fingerprints);  // else it is new at the next run as well
  }
  out.end_object();
  if (known.last && is_recorded(*known.last)) {
    out.line("\n ").key("last").begin_object().member("source", known.last->source);
    out.member("policies", known.last->policies).end_object();
  }
  out.end_object();
  return replace_shared_file(io, known_path(store), text + '\n');
}

}  // namespace ckpt
