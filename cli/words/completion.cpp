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

/// Words for the first argument.
std::vector<std::string> argument_words(const Verb& verb) {
  if (verb.name == "help") return help_topics();
  if (verb.name == "completion") return completion_shells();
  if (verb.name == "policy") return {"init", "show", "check", "simulate"};
  return {};
}

/// Whether the command takes names of a store only, no paths.
bool is_name_only(const Verb& verb) {
  return verb.arguments.find("NAME") != std::string_view::npos;
}

/// The text of a single-quoted shell word, without the quotes.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

/// The bash function that completes a kind, with its argument.
std::string bash_action(Completes kind) {
  if (kind == Completes::files) return "_ckpt_files -f";
  if (kind == Completes::directories) return "_ckpt_files -d";
  if (kind == Completes::nothing) return ":";
  return fmt::format("_ckpt_names {}", completion_word(kind));
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
      if (!allowed.empty()) {
        values += fmt::format("    {}:--{}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", verb.name,
                              flag.name, fmt::join(allowed, " "));
      } else if (!flag.value.empty()) {
        const Completes kind = completes(verb, flag);
        const std::string files = flag.name == "against" ? "_ckpt_files -f; " : "";
        values += fmt::format("    {}:--{}) {}{}; return ;;\n", verb.name, flag.name, files, bash_action(kind));
      }
    }
    const Completes kind = argument_completes(verb);
    const bool files = kind == Completes::checkpoints && !is_name_only(verb);
    flags += fmt::format("    {}) flags='{}'; words='{}'; action='{}{}' ;;\n", verb.name, fmt::join(names, " "),
                         fmt::join(argument_words(verb), " "), files ? "_ckpt_files -f; " : "", bash_action(kind));
  }
  return fmt::format(R"(# bash completion of ckpt
_ckpt_files() {{
  compopt -o filenames 2>/dev/null
  local path
  while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen "$1" -- "$cur")
}}
_ckpt_names() {{
  local name
  while IFS= read -r name; do
    [[ $name == "$start$cur"* ]] && COMPREPLY+=("${{name#"$start"}}")
  done < <(ckpt complete "$1" -- "${{COMP_WORDS[@]:1:COMP_CWORD-1}}" 2>/dev/null)
}}
_ckpt() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb= flags= words= word action=: start=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {}) verb=$word; break ;; esac
  done
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=${{COMP_WORDS[COMP_CWORD-2]}}
  if [[ $cur == @ ]]; then start=$prev@ cur=  # bash splits RUN@STEP at @
  elif [[ $prev == @ ]]; then start=${{COMP_WORDS[COMP_CWORD-2]}}@; fi
  COMPREPLY=()
  case $verb:$prev in
{}  esac
  case $verb in
{}    *) words='{}' flags='--help --version' ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n $words && ( $prev == "$verb" || " $words " != *" $prev "* ) ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    eval "$action"
  fi
}}
complete -F _ckpt ckpt
)",
                     fmt::join(verb_names(), "|"), values, flags, fmt::join(verb_names(), " "));
}

/// The action of zsh's _arguments.
std::string zsh_action(Completes kind, bool files) {
  if (kind == Completes::files) return "_files";
  if (kind == Completes::directories) return "_directories";
  if (kind == Completes::nothing) return " ";
  return fmt::format("{{ {}_ckpt_names {} }}", files ? "_files; " : "", completion_word(kind));
}

std::string zsh_flag(const Verb& verb, const Flag& flag) {
  std::string help;
  for (const char c : flag.help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') help.push_back('\\');
    help.push_back(c);
  }
  std::string action;
  if (!flag.value.empty()) {
    const std::vector<std::string> allowed = allowed_values(flag);
    action = fmt::format(":{}:{}", flag.value,
                         !allowed.empty() ? fmt::format("({})", fmt::join(allowed, " "))
                                          : zsh_action(completes(verb, flag), flag.name == "against"));
  }
  const std::string star = flag.repeatable ? "*" : "";
  std::string out = fmt::format("      '{}--{}[{}]{}' \\\n", star, flag.name, shell_quoted(help), action);
  if (flag.letter != 0) out += fmt::format("      '{}-{}[{}]{}' \\\n", star, flag.letter, shell_quoted(help), action);
  return out;
}

std::string zsh_script() {
  std::string out =
      "#compdef ckpt\n_ckpt_names() {\n  local -a found\n"
      "  found=(${(f)\"$(ckpt complete $1 -- ${words[1,CURRENT-1]} 2>/dev/null)\"})\n  compadd -a found\n}\n"
      "_ckpt() {\n  local -a verbs=(\n";
  for (const Verb& verb : verbs()) out += fmt::format("    '{}:{}'\n", verb.name, shell_quoted(verb.summary));
  out += "  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n";
  for (const Verb& verb : verbs()) {
    out += fmt::format("    {}) shift words; (( CURRENT-- )); _arguments \\\n", verb.name);
    for (const Flag& flag : flags_of(verb)) out += zsh_flag(verb, flag);
    const std::vector<std::string> words = argument_words(verb);
    const Completes kind = argument_completes(verb);
    if (words.empty())
      out += fmt::format("      '*:argument:{}' ;;\n",
                         zsh_action(kind, kind == Completes::checkpoints && !is_name_only(verb)));
    else
      out += fmt::format("      '1:word:({})'{} ;;\n", fmt::join(words, " "),
                         kind == Completes::files ? " '*:argument:_files'" : "");
  }
  return out + "  esac\n}\n_ckpt \"$@\"\n";
}

/// The fish command that prints the names of a kind, for the command line so far.
std::string fish_call(Completes kind) {
  return fmt::format("ckpt complete {} -- (commandline -opc)[2..-1] 2>/dev/null", completion_word(kind));
}

/// Options of fish's complete for a value: files and directories, or the names that ckpt prints.
std::string fish_value(Completes kind, bool files) {
  if (kind == Completes::files) return " -r -F";
  if (kind == Completes::directories) return " -x -a '(__fish_complete_directories)'";
  if (kind == Completes::nothing) return " -x";
  return fmt::format(" -r{} -a '({})'", files ? " -F" : " -f", fish_call(kind));
}

std::string fish_script() {
  std::string out = "# fish completion of ckpt\n";
  const std::string names = fmt::format("{}", fmt::join(verb_names(), " "));
  for (const Verb& verb : verbs())
    out += fmt::format("complete -c ckpt -f -n 'not __fish_seen_subcommand_from {}' -a {} -d '{}'\n", names, verb.name,
                       shell_quoted(verb.summary));
  const auto add = [&](const std::string& condition, const Verb& verb, const Flag& flag) {
    out += fmt::format("complete -c ckpt{} -l {} -d '{}'", condition, flag.name, shell_quoted(flag.help));
    if (flag.letter != 0) out += fmt::format(" -s {}", flag.letter);
    const std::vector<std::string> allowed = allowed_values(flag);
    if (!allowed.empty())
      out += fmt::format(" -x -a '{}'", fmt::join(allowed, " "));
    else if (!flag.value.empty())
      out += fish_value(completes(verb, flag), flag.name == "against");
    out += "\n";
  };
  for (const Verb& verb : verbs()) {
    const std::string condition = fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const Flag& flag : verb.flags) add(condition, verb, flag);
    if (const auto words = argument_words(verb); !words.empty())
      out += fmt::format("complete -c ckpt{}{} -a '{}'\n", condition,
                         argument_completes(verb) == Completes::files ? " -F" : " -f", fmt::join(words, " "));
    else if (const Completes kind = argument_completes(verb); kind == Completes::files)
      out += fmt::format("complete -c ckpt{} -F\n", condition);
    else if (kind != Completes::nothing)
      out += fmt::format("complete -c ckpt{}{} -a '({})'\n", condition, is_name_only(verb) ? " -f" : " -F",
                         fish_call(kind));
  }
  for (const Flag& flag : global_flags()) add("", verbs().front(), flag);
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
