#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// `ckpt -h`: examples, and the commands in groups with one line each. `width`: columns of the terminal.
std::string short_help(std::size_t width);
/// `ckpt --help`: examples, the commands in groups, the global options. `width`: columns of the terminal.
std::string long_help(std::size_t width);
/// `ckpt COMMAND -h`: usage, examples, options.
std::string short_verb_help(const Verb& verb, std::size_t width);
/// `ckpt COMMAND --help`: also the full description and the exit codes.
std::string verb_help(const Verb& verb, std::size_t width);
/// A topic of `ckpt help`: "exit-codes", "formats", "units", "environment"; nullopt for any other word.
std::optional<std::string> topic_help(std::string_view topic);
/// Commands and topics, for "did you mean".
std::vector<std::string> help_topics();

/// The man page in scdoc format: of the program (null) or of a command.
std::string manual_page(const Verb* verb);

/// The completion script for "bash", "zsh" or "fish"; nullopt for any other shell.
std::optional<std::string> completion_script(std::string_view shell);
std::vector<std::string> completion_shells();

}  // namespace ckpt::cli
