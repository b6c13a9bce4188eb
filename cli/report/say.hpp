#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/document.hpp"
#include "cli/words/settings.hpp"

namespace ckpt::cli {

/// An answer that is one failure.
Answer failed(Error error, std::string effect = {});

/// Takes over the findings that are graver than notes, for the JSON document.
void take_warnings(Answer& answer, const std::vector<Finding>& findings);

/// For people: notes as "note    TEXT" on standard output, everything graver as a warning on standard error; ten of
/// each, all with -v. With -q no notes, and all warnings, one line each.
void print_findings(Context& context, std::span<const Finding> findings);

/// A finding in one line: its text, then tensor and file unless the text names them, and the offset.
std::string finding_text(const Finding& finding);

/// Prints text to standard output unless --json or, where `important` is false, --quiet.
void say(Context& context, std::string_view text, bool important = false);

/// The same; lines wider than the terminal go on in the next one, `indent` columns in.
void say_fitted(Context& context, std::string_view text, std::size_t indent);

/// A word of a shell command, quoted if necessary.
std::string shell_word(std::string_view word);
/// A path as such a word: one that begins with a dash gets "./" before it.
std::string shell_path(std::string_view path);
/// " --store DIR" as it was given on the command line, for a command that ckpt prints; "" if it was not.
std::string store_option(const Words& words);

}  // namespace ckpt::cli
