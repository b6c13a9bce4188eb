#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/catalog/policy_file.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/session.hpp"
#include "cli/commands/simulate_command.hpp"
#include "cli/report/policy_text.hpp"
#include "cli/words/store_options.hpp"
#include "format/text/nearest.hpp"

namespace ckpt::cli {
namespace {

/// The options of each action, besides --store.
struct PolicyAction {
  std::string_view name;
  std::size_t most_arguments;  ///< after the action
  std::array<std::string_view, 5> options;
};
constexpr std::array<PolicyAction, 4> kPolicyActions{
    {{"init", 1, {"preset", "dry-run"}},
     {"show", 2, {"policy"}},
     {"check", 1, {}},
     {"simulate", 1, {"policy", "interval", "until", "step-time", "checkpoint-size"}}}};

bool store_by_option(const Words& words) {
  const Value* value = words.value("store");
  return value != nullptr && value->origin == "--store";
}

Result<const PolicyAction*> read_policy_action(const Words& words) {
  const std::string& word = words.arguments.front();
  const auto found = std::ranges::find(kPolicyActions, word, &PolicyAction::name);
  if (found == kPolicyActions.end()) {
    std::vector<std::string> names;
    for (const PolicyAction& action : kPolicyActions) names.emplace_back(action.name);
    const auto near = nearest(word, names);
    return fail(
        {.code = Errc::usage,
         .message = fmt::format("ckpt policy: unknown action '{}'", word),
         .hint = near ? fmt::format("did you mean 'ckpt policy {}'?", *near) : "init, show, check or simulate"});
  }
  for (const Flag& flag : words.verb->flags) {
    const Value* value = words.value(flag.name);
    const bool own = flag.name == "store" || std::ranges::find(found->options, flag.name) != found->options.end();
    if (value != nullptr && value->origin.starts_with("--") && !own)
      return fail(Errc::usage, fmt::format("{} is not an option of 'ckpt policy {}'", value->origin, word));
  }
  const std::size_t most = found->most_arguments - (store_by_option(words) && found->name == "show" ? 1 : 0);
  if (words.arguments.size() - 1 > most)
    return fail(Errc::usage, fmt::format("ckpt policy {}: unexpected argument '{}'", word, words.arguments[most + 1]));
  return &*found;
}

/// The store, by the first argument after the action or --store.
Result<std::string> policy_store(const Words& words) {
  if (words.arguments.size() < 2) return store_of(words);
  if (store_by_option(words))
    return fail(Errc::usage, fmt::format("STORE ('{}') and --store cannot be used together", words.arguments[1]));
  return words.arguments[1];
}

void warn_of(Context& context, Answer& answer, const std::vector<std::string>& warnings) {
  for (const std::string& text : warnings) answer.warnings.push_back({.severity = Severity::warning, .text = text});
  print_findings(context, answer.warnings);
}

Answer write_preset(Context& context) {
  const Words& words = context.words;
  auto store = policy_store(words);
  if (!store) return failed(std::move(store).error());
  InitPolicyRequest request{.store = *store, .dry_run = words.on("dry-run"), .now = now()};
  const std::string name = words.value("preset") != nullptr ? words.text("preset") : "research";
  const auto preset = std::ranges::find(catalog::kPresetNames, name);
  request.preset = static_cast<catalog::Preset>(preset - catalog::kPresetNames.begin());
  auto report = ask_alone(context, [&](Session& session) -> Result<InitPolicyReport> {
    CKPT_CHECK(check_outermost(session.io, request.store));
    return init_policy(session.io, request);
  });
  if (!report) {
    const bool is_written = report.error().code == Errc::not_durable;
    return failed(std::move(report).error(), is_written ? "" : "nothing was written");
  }
  Answer out;
  warn_of(context, out, report->warnings);
  if (request.dry_run) {
    say(context, report->text, true);
  } else {
    say(context, fmt::format("wrote {} (preset {})\n", printable(report->path), name));
    const std::string place = *store == "." ? "" : fmt::format(" {}", shell_path(*store));
    const std::string option = *store == "." ? "" : fmt::format(" --store {}", shell_path(*store));
    say(context, fmt::format("next: ckpt policy show{}, then ckpt prune{}\n", place, option));
  }
  json::Writer data = data_writer(out.data);
  data.begin_object().member("action", "init").member("preset", name);
  put_text(data, "store", *store);
  put_text(data, "path", report->path);
  put_text(data, "text", report->text);
  data.member("written", !request.dry_run).end_object();
  return out;
}

/// A store without a policy file.
Answer without_policy(Context& context, const std::string& store) {
  Answer out;
  const std::string path = join_path(store, kPolicyFile);
  say(context, fmt::format("{} does not exist: no policy applies, and ckpt prune deletes nothing\n", printable(path)),
      true);
  say(context, fmt::format("next: ckpt policy init{}\n", store == "." ? "" : " " + shell_path(store)));
  json::Writer data = data_writer(out.data);
  data.begin_object().member("action", "show");
  put_text(data, "store", store);
  data.member("policy", nullptr).key("policies").begin_array().end_array();
  data.key("unmatched").begin_array().end_array().end_object();
  return out;
}

Answer show_policy(Context& context) {
  const Words& words = context.words;
  const bool named = store_by_option(words);
  auto store = named ? Result<std::string>(store_of(words)) : policy_store(words);
  if (!store) return failed(std::move(store).error());
  const std::string run = words.arguments.size() > (named ? 1 : 2) ? words.arguments.back() : "";
  PruneRequest request{.store = *store, .policy = {.file = words.text("policy")}, .now = now()};
  bool exists = true;
  auto plan = ask_alone(context, [&](Session& session) -> Result<PrunePlan> {
    CKPT_CHECK(check_outermost(session.io, *store));
    exists = !request.policy.file.empty() || session.io.stat(join_path(*store, kPolicyFile)).has_value();
    if (!exists) return PrunePlan{};
    return plan_prune(session, request);
  });
  if (!plan) return failed(std::move(plan).error());
  if (!exists) return without_policy(context, *store);
  Answer out;
  warn_of(context, out, plan->warnings);
  print_shown_policy(context, *plan, run);
  if (context.settings.json) out.data = shown_policy_data(*plan, run);
  return out;
}

Answer check_file(Context& context) {
  const Words& words = context.words;
  const std::string store = store_of(words);
  auto checked = ask_alone(context, [&](Session& session) -> Result<CheckedPolicy> {
    std::string path = words.arguments.size() > 1 ? words.arguments[1] : store;
    CKPT_TRY(const FileInfo info, session.io.stat(path));
    if (info.kind == FileInfo::Kind::directory) {
      CKPT_TRY(path, policy_store(words));
      return check_policy(session.io, join_path(path, kPolicyFile), path);
    }
    return check_policy(session.io, path, words.value("store") != nullptr ? store : parent_path(path));
  });
  if (!checked) return failed(std::move(checked).error());
  Answer out;
  print_checked_policy(context, *checked);
  if (context.settings.json) out.data = checked_policy_data(*checked);
  return out;
}

}  // namespace

Answer run_policy(Context& context) {
  const auto action = read_policy_action(context.words);
  if (!action) return failed(action.error());
  if ((*action)->name == "init") return write_preset(context);
  if ((*action)->name == "show") return show_policy(context);
  if ((*action)->name == "check") return check_file(context);
  auto store = policy_store(context.words);
  if (!store) return failed(std::move(store).error());
  return run_simulation(context, *store, {.file = context.words.text("policy")});
}

}  // namespace ckpt::cli
