#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// The first screen: what the program is for, the main verbs, examples.
std::string first_screen();
/// One verb: what it does, its flags, examples, exit codes.
std::string verb_help(const Verb& verb);
/// A topic of `ckpt help`: "exit-codes", "formats", "units", "environment"; nothing for another word.
std::optional<std::string> topic_help(std::string_view topic);
/// Verbs and topics, for "did you mean".
std::vector<std::string> help_topics();

/// The manual page in scdoc's language: of the program (null) or of a verb.
std::string manual_page(const Verb* verb);

/// The completion script for "bash", "zsh" or "fish"; nothing for another shell.
std::optional<std::string> completion_script(std::string_view shell);
std::vector<std::string> completion_shells();

/// Text broken at blanks so that no line is longer than `width`, every line after `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace ckpt::cli
