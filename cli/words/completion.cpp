#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/words/manual.hpp"

namespace ckpt::cli {
namespace {

std::vector<std::string> verb_names() {
  std::vector<std::string> out;
  for (const Verb& verb : verbs()) out.emplace_back(verb.name);
  return out;
}

std::vector<Flag> flags_of(const Verb& verb) {
  std::vector<Flag> out = verb.flags;
  out.insert(out.end(), global_flags().begin(), global_flags().end());
  return out;
}

/// Words for the first argument of a verb that takes no path.
std::vector<std::string> argument_words(const Verb& verb) {
  if (verb.name == "help") return help_topics();
  if (verb.name == "completion") return completion_shells();
  return {};
}

bool takes_path(const Verb& verb) {
  return verb.main_verb;
}

/// The text of a single-quoted shell word, without the quotes.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string bash_script() {
  std::string values;
  std::string flags;
  for (const Verb& verb : verbs()) {
    std::vector<std::string> names;
    for (const Flag& flag : flags_of(verb)) {
      names.push_back("--" + std::string(flag.name));
      if (flag.letter != 0) names.push_back(std::string("-") + flag.letter);
      const std::vector<std::string> allowed = allowed_values(flag);
      if (!allowed.empty())
        values += fmt::format("    {}:--{}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", verb.name,
                              flag.name, fmt::join(allowed, " "));
      else if (!flag.value.empty() && flag.name != "log-file" && flag.name != "against")
        values += fmt::format("    {}:--{}) return ;;\n", verb.name, flag.name);
    }
    flags += fmt::format("    {}) flags='{}'; words='{}' ;;\n", verb.name, fmt::join(names, " "),
                         fmt::join(argument_words(verb), " "));
  }
  return fmt::format(R"(# bash completion of ckpt
_ckpt() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb= flags= words= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {}) verb=$word; break ;; esac
  done
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=${{COMP_WORDS[COMP_CWORD-2]}}
  COMPREPLY=()
  case $verb:$prev in
{}  esac
  case $verb in
{}    *) words='{}' flags='--help --version' ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}}
complete -F _ckpt ckpt
)",
                     fmt::join(verb_names(), "|"), values, flags, fmt::join(verb_names(), " "));
}

std::string zsh_flag(const Flag& flag) {
  std::string help;
  for (const char c : flag.help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') help.push_back('\\');
    help.push_back(c);
  }
  std::string action;
  if (!flag.value.empty()) {
    const std::vector<std::string> allowed = allowed_values(flag);
    const bool file = flag.name == "log-file" || flag.name == "against";
    action = fmt::format(":{}:{}", flag.value,
                         !allowed.empty() ? fmt::format("({})", fmt::join(allowed, " "))
                         : file           ? "_files"
                                          : " ");
  }
  const std::string star = flag.repeatable ? "*" : "";
  std::string out = fmt::format("      '{}--{}[{}]{}' \\\n", star, flag.name, shell_quoted(help), action);
  if (flag.letter != 0) out += fmt::format("      '{}-{}[{}]{}' \\\n", star, flag.letter, shell_quoted(help), action);
  return out;
}

std::string zsh_script() {
  std::string out = "#compdef ckpt\n_ckpt() {\n  local -a verbs=(\n";
  for (const Verb& verb : verbs()) out += fmt::format("    '{}:{}'\n", verb.name, shell_quoted(verb.summary));
  out += "  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n";
  for (const Verb& verb : verbs()) {
    out += fmt::format("    {}) shift words; (( CURRENT-- )); _arguments \\\n", verb.name);
    for (const Flag& flag : flags_of(verb)) out += zsh_flag(flag);
    const std::vector<std::string> words = argument_words(verb);
    if (takes_path(verb))
      out += "      '*:path:_files' ;;\n";
    else
      out += fmt::format("      '1:word:({})' ;;\n", fmt::join(words, " "));
  }
  return out + "  esac\n}\n_ckpt \"$@\"\n";
}

std::string fish_script() {
  std::string out = "# fish completion of ckpt\n";
  const std::string names = fmt::format("{}", fmt::join(verb_names(), " "));
  for (const Verb& verb : verbs())
    out += fmt::format("complete -c ckpt -f -n 'not __fish_seen_subcommand_from {}' -a {} -d '{}'\n", names, verb.name,
                       shell_quoted(verb.summary));
  const auto add = [&](const std::string& condition, const Flag& flag) {
    out += fmt::format("complete -c ckpt{} -l {} -d '{}'", condition, flag.name, shell_quoted(flag.help));
    if (flag.letter != 0) out += fmt::format(" -s {}", flag.letter);
    const std::vector<std::string> allowed = allowed_values(flag);
    if (!allowed.empty())
      out += fmt::format(" -x -a '{}'", fmt::join(allowed, " "));
    else if (!flag.value.empty())
      out += flag.name == "log-file" || flag.name == "against" ? " -r" : " -x";
    out += "\n";
  };
  for (const Verb& verb : verbs()) {
    const std::string condition = fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const Flag& flag : verb.flags) add(condition, flag);
    if (const auto words = argument_words(verb); !words.empty())
      out += fmt::format("complete -c ckpt{} -f -a '{}'\n", condition, fmt::join(words, " "));
    else if (takes_path(verb))
      out += fmt::format("complete -c ckpt{} -F\n", condition);
  }
  for (const Flag& flag : global_flags()) add("", flag);
  return out;
}

}  // namespace

std::vector<std::string> completion_shells() {
  return {"bash", "zsh", "fish"};
}

std::optional<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return std::nullopt;
}

}  // namespace ckpt::cli
