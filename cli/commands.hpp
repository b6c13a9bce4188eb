#pragma once

#include <string>
#include <vector>

#include "cli/json.hpp"
#include "cli/settings.hpp"

namespace ckpt::cli {

/// Each verb: calls the api, prints what people read (unless --json), and returns what the exit code and the JSON
/// document are made from. Errors and warnings are printed by the caller.
Answer run_convert(Context& context);
Answer run_verify(Context& context);
Answer run_inspect(Context& context);
Answer run_ls(Context& context);
Answer run_help(Context& context);
Answer run_explain(Context& context);
Answer run_version(Context& context);
Answer run_completion(Context& context);

/// An answer that is one failure.
Answer failed(Error error, std::string effect = {});

/// Takes over findings that deserve a warning line.
void take_warnings(Answer& answer, const std::vector<Finding>& findings);

/// "note    TEXT" lines of the findings that are only notes: the first ten, all with -v.
void print_notes(Context& context, const std::vector<Finding>& findings);

/// A finding in one line: its text, then the file and the tensor where the text does not name them.
std::string finding_text(const Finding& finding);

/// Prints text to standard output unless --json or, where `important` is false, --quiet.
void say(Context& context, std::string_view text, bool important = false);

/// A path as a word of a shell command.
std::string shell_word(std::string_view path);

}  // namespace ckpt::cli
