#include "cli/words/manual.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/output/console.hpp"

namespace ckpt::cli {
namespace {

/// Escapes the markup of scdoc: * _ \ # and characters at the start of a line that begin a list.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '*' || c == '_' || c == '\\' || c == '#' || c == '<' || c == '>' || c == '[' || c == ']' || c == '~' ||
        (c == '-' && out.empty()))
      out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string capitalised(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out.find(':') > out.find(' '))
    out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  return out;
}

std::string flag_entries(std::span<const Flag> flags) {
  std::string out;
  for (const Flag& flag : flags) {
    out += flag.letter != 0 ? fmt::format("*-{}*, *--{}*", flag.letter, flag.name) : fmt::format("*--{}*", flag.name);
    if (!flag.value.empty()) out += fmt::format(" _{}_", escaped(flag.value));
    std::string text(flag.help);
    const std::vector<std::string> allowed = allowed_values(flag);
    if (!allowed.empty()) text += fmt::format(" ({})", fmt::join(allowed, ", "));
    if (flag.repeatable && !flag.value.empty()) text += " (repeatable)";
    out += fmt::format("\n\t{}.\n\n", escaped(capitalised(text)));
  }
  return out;
}

std::string exit_entries(const Verb* verb) {
  std::string out;
  for (const ExitCode& row : exit_codes()) {
    constexpr std::array<int, 5> everywhere{0, 2, 70, 130, 143};
    const bool listed = verb == nullptr || std::ranges::find(everywhere, row.code) != everywhere.end() ||
                        std::ranges::find(verb->exit_codes, row.code) != verb->exit_codes.end();
    if (listed) out += fmt::format("*{}*\n\t{}.\n\n", row.code, escaped(capitalised(row.meaning)));
  }
  return out;
}

std::string see_also(const Verb* verb) {
  std::string out;
  for (const Verb& other : verbs())
    if (other.has_page() && &other != verb) out += fmt::format("*ckpt-{}*(1), ", other.name);
  if (verb != nullptr) return out + "*ckpt*(1)\n";
  out.resize(out.size() - 2);
  return out + "\n";
}

std::string program_page() {
  std::string out =
      "ckpt(1)\n\n# NAME\n\nckpt - convert, verify, inspect and manage training checkpoints\n\n# SYNOPSIS\n\n"
      "*ckpt* _COMMAND_ \\[OPTIONS\\]\n\n# DESCRIPTION\n\n"
      "ckpt converts checkpoints between training frameworks, verifies them, shows their contents, and manages stores "
      "of checkpoints. It needs no GPU, no Python and no training code, and it never executes the pickles in a "
      "file.\n\n# COMMANDS\n\n";
  for (const Verb& verb : verbs())
    out += fmt::format("*{}* {}\n\t{}.{}\n\n", verb.name, verb.arguments.empty() ? "" : escaped(verb.arguments),
                       escaped(verb.summary), verb.has_page() ? fmt::format(" See *ckpt-{}*(1).", verb.name) : "");
  out +=
      "# GLOBAL OPTIONS\n\nGlobal options may appear anywhere on the command line.\n\n" + flag_entries(global_flags());
  return out;
}

std::string verb_page(const Verb& verb) {
  std::string out = fmt::format(
      "ckpt-{0}(1)\n\n# NAME\n\nckpt-{0} - {1}\n\n# SYNOPSIS\n\n*ckpt {0}* _{2}_ \\[OPTIONS\\]\n\n"
      "# DESCRIPTION\n\n",
      verb.name, escaped(verb.summary), verb.arguments);
  for (const std::string_view paragraph : verb.about) out += escaped(paragraph) + "\n\n";
  out += "# OPTIONS\n\n" + flag_entries(verb.flags);
  out += "*ckpt*(1) describes the global options (*-q*, *-v*, *--json*, *--memory*, ...).\n\n";
  out += "# EXAMPLES\n\n";
  for (const Example& example : verb.examples)
    out += fmt::format("*{}*\n\t{}{}\n\n", escaped(example.command), escaped(capitalised(example.meaning)),
                       example.meaning.ends_with('?') ? "" : ".");
  return out;
}

}  // namespace

std::string manual_page(const Verb* verb) {
  std::string out = verb == nullptr ? program_page() : verb_page(*verb);
  out += "# EXIT STATUS\n\n" + exit_entries(verb) + "Treat an unknown code as failure.\n\n";
  out +=
      "# ENVIRONMENT\n\nA variable sets the default of every option: CKPT\\_ and the option's name in capitals, with "
      "\\_ for -, such as *CKPT_MEMORY*. The command line takes precedence.\n\n"
      "*CKPT_PROGRESS_EVERY*\n\tTime between progress lines (default: 30s).\n\n"
      "*NO_COLOR*, *CLICOLOR_FORCE*, *TERM*, *COLUMNS*\n\tColours and width of the output.\n\n";
  return out + "# SEE ALSO\n\n" + see_also(verb);
}

}  // namespace ckpt::cli
