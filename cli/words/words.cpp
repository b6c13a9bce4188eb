#include "cli/words/words.hpp"

#include "cli/words/habits.hpp"
#include "format/text/nearest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>

namespace ckpt::cli {
namespace {

bool is_false(std::string_view text) {
  return text == "0" || text == "false" || text == "no" || text == "off";
}

bool is_true(std::string_view text) {
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

bool looks_like_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-';
}

Error usage(std::string message, std::string hint = {}) {
  return {.code = Errc::usage, .message = std::move(message), .hint = std::move(hint)};
}

std::string did_you_mean(const std::string& what) {
  return fmt::format("did you mean '{}'?", what);
}

/// CLI11 2.1.2 takes the next word as the value of "--flag=", drops "--" after a subcommand, and treats a bare "++" as
/// the end of the subcommand. So "--flag=" is split in two here, and words after "--" never reach CLI11.
struct Tidied {
  std::vector<std::string> words;
  std::vector<std::string> after;
};

/// Whether a word is an option of some command whose value may be omitted.
const Flag* bare_flag(std::string_view word) {
  if (!word.starts_with("--")) return nullptr;
  for (const Verb& verb : verbs())
    for (const Flag& flag : verb.flags)
      if (!flag.bare.empty() && flag.name == word.substr(2)) return &flag;
  return nullptr;
}

Tidied tidy(const std::vector<std::string>& arguments) {
  Tidied out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      out.after.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (const Flag* flag = bare_flag(word)) {
      const bool valued = i + 1 < arguments.size() && !arguments[i + 1].empty() && arguments[i + 1][0] >= '0' &&
                          arguments[i + 1][0] <= '9';
      out.words.push_back(word + "=" + (valued ? arguments[++i] : std::string(flag->bare)));
      continue;
    }
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      out.words.push_back(word.substr(0, word.size() - 1));
      out.words.emplace_back();
    } else {
      out.words.push_back(word == "++" ? "./++" : word);
    }
  }
  return out;
}

/// The CLI11 application, built from the grammar.
struct Application {
  CLI::App app{"ckpt", "ckpt"};
  std::vector<std::pair<const Flag*, CLI::Option*>> options;
  std::vector<std::pair<const Verb*, CLI::App*>> subcommands;

  Application() {
    app.set_help_flag();
    app.allow_extras();
    app.require_subcommand(0, 1);
    for (const Flag& flag : global_flags()) add(app, flag);
    const auto add_verb = [&](const Verb& verb) {
      CLI::App* sub = app.add_subcommand(std::string(verb.name), "");
      for (const std::string_view alias : verb.aliases) sub->alias(std::string(alias));
      sub->set_help_flag();
      sub->fallthrough();
      for (const Flag& flag : verb.flags) add(*sub, flag);
      subcommands.emplace_back(&verb, sub);
    };
    for (const Verb& verb : verbs()) add_verb(verb);
    add_verb(complete_verb());
  }

  void add(CLI::App& to, const Flag& flag) {
    std::string names = "--" + std::string(flag.name);
    if (flag.letter != 0) names += std::string(",-") + flag.letter;
    CLI::Option* option = flag.value.empty() ? to.add_flag(names) : to.add_option(names)->expected(1);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    option->allow_extra_args(false);
    options.emplace_back(&flag, option);
  }
};

std::vector<std::string> long_flags(const Verb* verb) {
  std::vector<std::string> out;
  if (verb != nullptr)
    for (const Flag& flag : verb->flags) out.push_back("--" + std::string(flag.name));
  for (const Flag& flag : global_flags()) out.push_back("--" + std::string(flag.name));
  return out;
}

/// "run" of "[RUN]...".
bool is_argument(const Verb& verb, std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  for (std::string_view rest = verb.arguments; !rest.empty();) {
    const std::size_t begin = std::min(rest.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), rest.size());
    rest.remove_prefix(begin);
    const std::string_view one = rest.substr(0, rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
    if (!one.empty() && one == word) return true;
    rest.remove_prefix(one.size());
  }
  return false;
}

Error unknown_flag(const Verb* verb, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  const std::string where = verb != nullptr ? fmt::format(" of 'ckpt {}'", verb->name) : "";
  Error error = usage(fmt::format("unknown option '{}'{}", name, where));
  if (verb != nullptr)
    for (const Flag& flag : verb->flags)
      if (std::ranges::find(flag.guesses, bare) != flag.guesses.end())
        return with_hint(error, did_you_mean("--" + std::string(flag.name)));
  for (const Flag& flag : global_flags())
    if (std::ranges::find(flag.guesses, bare) != flag.guesses.end())
      return with_hint(error, did_you_mean("--" + std::string(flag.name)));
  if (verb != nullptr && is_argument(*verb, bare))
    return with_hint(error, fmt::format("it is an argument: ckpt {} {}", verb->name, verb->arguments));
  for (const Verb& other : verbs())
    if (&other != verb && find_flag(&other, bare) != nullptr && bare.size() > 1)
      return with_hint(error, fmt::format("'--{}' is an option of 'ckpt {}'", bare, other.name));
  if (verb != nullptr && (bare == "o" || bare == "output" || bare == "out") && verb->most_arguments == 2)
    return with_hint(error, fmt::format("the target is the second argument: ckpt {} SRC DST", verb->name));
  if (const auto near = nearest(name.starts_with("--") ? name : "--" + bare, long_flags(verb)); near && bare.size() > 1)
    return with_hint(error, did_you_mean(*near));
  return with_hint(error, verb != nullptr ? fmt::format("'ckpt help {}' lists the options", verb->name)
                                          : "'ckpt help' lists the commands");
}

Error unknown_verb(const std::string& word, const std::vector<std::string>& arguments) {
  Error error = usage(fmt::format("unknown command '{}'", word));
  if (word == "delete" || word == "rm" || word == "remove")
    return with_hint(error, "'ckpt prune' deletes checkpoints by policy");
  if (const std::string_view hint = habit_hint(word); !hint.empty()) return with_hint(error, std::string(hint));
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    names.emplace_back(verb.name);
    names.insert(names.end(), verb.aliases.begin(), verb.aliases.end());
  }
  if (const auto near = nearest(word, names)) return with_hint(error, did_you_mean("ckpt " + *near));
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored)) {
    const std::string meant = arguments.empty() ? "ckpt inspect " + word : "ckpt convert " + word + " " + arguments[0];
    return with_hint(error, did_you_mean(meant));
  }
  return with_hint(error, "'ckpt help' lists the commands");
}

std::optional<Error> check_value(const Flag& flag, const Value& value) {
  if (flag.value.empty()) {
    if (is_true(value.text) || is_false(value.text) || flag.name == "verbose") return std::nullopt;
    return usage(fmt::format("{}: '{}' is not a boolean (1 or 0)", value.origin, value.text));
  }
  if (flag.value == "FORMAT" && !flag.loads) {
    for (const FormatInfo& format : known_formats())
      if (format.name == value.text) return std::nullopt;
  }
  const std::vector<std::string> allowed = allowed_values(flag);
  if (allowed.empty() || std::ranges::find(allowed, value.text) != allowed.end()) return std::nullopt;
  const auto near = nearest(value.text, allowed);
  const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
  return usage(fmt::format("{}: '{}' is not one of {}", value.origin, value.text, list),
               near ? did_you_mean(value.origin + (value.origin[0] == '-' ? " " : "=") + *near) : "");
}

std::optional<Error> check_arguments(const Words& words) {
  const Verb& verb = *words.verb;
  const std::string form = fmt::format("ckpt {} {}", verb.name, verb.arguments);
  if (!verb.hidden && std::ranges::count(words.arguments, std::string()) != 0)  // a variable that a script did not set
    return usage(fmt::format("ckpt {}: an argument is empty", verb.name), fmt::format("usage: {}", form));
  const auto needed = [&]() -> std::string_view {
    const std::string_view all = verb.arguments;
    const std::size_t first_end = std::min(all.find_first_of(" ."), all.size());
    if (words.arguments.empty() || first_end == all.size()) return all.substr(0, first_end);
    return all.substr(first_end + 1);
  };
  if (words.arguments.size() < verb.least_arguments)
    return usage(fmt::format("ckpt {}: missing argument {}", verb.name, needed()), fmt::format("usage: {}", form));
  if (words.arguments.size() > verb.most_arguments)
    return usage(fmt::format("ckpt {}: unexpected argument '{}'", verb.name, words.arguments[verb.most_arguments]),
                 verb.most_arguments == 0 ? fmt::format("usage: ckpt {}", verb.name)
                                          : fmt::format("usage: {} (quote names that contain blanks or *)", form));
  return std::nullopt;
}

void take_environment(const Verb* verb, const Environment& environment, Words& words) {
  const auto take = [&](const Flag& flag) {
    if (words.value(flag.name) != nullptr || flag.name == "help" || flag.name == "version") return;
    const std::string name = environment_name(flag.name);
    if (const auto text = environment(name); text && !text->empty())
      words.add(flag.name, {canonical_value(flag, *text), name});
  };
  if (verb != nullptr) std::ranges::for_each(verb->flags, take);
  std::ranges::for_each(global_flags(), take);
}

/// Turns -h, --help and --version into the commands help and version.
void redirect(Words& words) {
  if (words.on("help")) {
    const std::string topic = words.verb != nullptr ? std::string(words.verb->name) : "";
    words.verb = find_verb("help");
    words.arguments.clear();
    if (!topic.empty()) words.arguments.push_back(topic);
  } else if (words.on("version")) {
    words.verb = find_verb("version");
    words.arguments.clear();
  }
}

std::optional<Error> check(const Words& words) {
  if (words.verb == nullptr) {
    if (words.arguments.empty()) return usage("no command given", "'ckpt help' lists the commands");
    return unknown_verb(words.arguments.front(), {words.arguments.begin() + 1, words.arguments.end()});
  }
  const auto check_flag = [&](const Flag& flag) -> std::optional<Error> {
    const Value* value = words.value(flag.name);
    const bool is_remark = flag.value == "TEXT" || flag.value == "WHO";
    if (value != nullptr && !is_remark && std::ranges::count(words.all(flag.name), std::string()) != 0)
      return usage(fmt::format("--{} is empty", flag.name), fmt::format("usage: --{} {}", flag.name, flag.value));
    return value != nullptr ? check_value(flag, *value) : std::nullopt;
  };
  for (const Flag& flag : words.verb->flags)
    if (auto error = check_flag(flag)) return error;
  for (const Flag& flag : global_flags())
    if (auto error = check_flag(flag)) return error;
  return check_arguments(words);
}

Error from_cli11(const CLI::ParseError& error, const Tidied& tidied, const Verb* verb) {
  const std::string last = tidied.words.empty() ? "" : tidied.words.back();
  const Flag* flag = last.starts_with("--") ? find_flag(verb, last.substr(2)) : nullptr;
  if (flag == nullptr || flag->value.empty()) return usage(error.what());
  const std::vector<std::string> allowed = allowed_values(*flag);
  return usage(fmt::format("{} needs a value", last), allowed.empty()
                                                          ? fmt::format("usage: {} {}", last, flag->value)
                                                          : fmt::format("one of {}", fmt::join(allowed, ", ")));
}

}  // namespace

void Words::add(std::string_view flag, Value value) {
  values_[std::string(flag)].push_back(std::move(value));
}

const Value* Words::value(std::string_view flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? nullptr : &found->second.back();
}

std::string Words::text(std::string_view flag) const {
  const Value* last = value(flag);
  return last != nullptr ? last->text : "";
}

bool Words::on(std::string_view flag) const {
  return count(flag) != 0;
}

unsigned Words::count(std::string_view flag) const {
  const auto found = values_.find(flag);
  if (found == values_.end()) return 0;
  unsigned total = 0;
  for (const Value& value : found->second) {
    if (is_false(value.text))
      total = 0;
    else if (value.text.size() == 1 && value.text[0] >= '2' && value.text[0] <= '9')
      total += static_cast<unsigned>(value.text[0] - '0');
    else
      ++total;
  }
  return total;
}

std::vector<std::string> Words::all(std::string_view flag) const {
  std::vector<std::string> out;
  if (const auto found = values_.find(flag); found != values_.end())
    for (const Value& value : found->second) out.push_back(value.text);
  return out;
}

Parsed parse_words(const std::vector<std::string>& arguments, const Environment& environment) {
  const Tidied tidied = tidy(arguments);
  Application application;
  Parsed out;
  Words& words = out.words;
  words.brief_help = std::ranges::find(tidied.words, "-h") != tidied.words.end();
  try {
    std::vector<std::string> reversed(tidied.words.rbegin(), tidied.words.rend());  // the order that CLI11 expects
    application.app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    for (const std::string& word : tidied.words) {
      if (words.verb == nullptr && !looks_like_flag(word)) words.verb = find_verb(word);
      if (word == "--json" || word == "--quiet") words.add(word.substr(2), {"true", word});
    }
    out.error = from_cli11(error, tidied, words.verb);
    take_environment(nullptr, environment, words);
    return out;
  }
  for (const auto& [verb, sub] : application.subcommands)
    if (sub->parsed()) words.verb = verb;
  for (const auto& [flag, option] : application.options)
    for (const std::string& result : option->results())
      words.add(flag->name, {canonical_value(*flag, result), "--" + std::string(flag->name)});
  std::optional<Error> stray;
  for (const std::string& word : application.app.remaining(true)) {
    if (!looks_like_flag(word))
      words.arguments.push_back(word);
    else if (!stray)
      stray = unknown_flag(words.verb, word);
  }
  words.arguments.insert(words.arguments.end(), tidied.after.begin(), tidied.after.end());
  take_environment(words.verb, environment, words);
  if (stray && !(words.verb == nullptr && !words.arguments.empty())) {
    out.error = std::move(stray);
    return out;
  }
  redirect(words);
  out.error = check(words);
  out.no_command = words.verb == nullptr && words.arguments.empty();
  return out;
}

}  // namespace ckpt::cli
