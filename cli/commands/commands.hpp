#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/output/json.hpp"
#include "cli/words/settings.hpp"

namespace ckpt::cli {

/// Each command calls the api, prints text for people (unless --json), and returns the data for the exit code and the
/// JSON document. The caller prints errors.
Answer run_convert(Context& context);
Answer run_save(Context& context);
Answer run_load(Context& context);
Answer run_verify(Context& context);
Answer run_inspect(Context& context);
Answer run_ls(Context& context);
Answer run_plan(Context& context);
Answer run_doctor(Context& context);
Answer run_prune(Context& context);
Answer run_repair(Context& context);
Answer run_undelete(Context& context);
Answer run_why(Context& context);
Answer run_list(Context& context);
Answer run_status(Context& context);
Answer run_pin(Context& context);
Answer run_unpin(Context& context);
Answer run_next_save(Context& context);
Answer run_help(Context& context);
Answer run_explain(Context& context);
Answer run_version(Context& context);
Answer run_completion(Context& context);

/// An answer that is one failure.
Answer failed(Error error, std::string effect = {});

/// Takes over the findings that are graver than notes, for the JSON document.
void take_warnings(Answer& answer, const std::vector<Finding>& findings);

/// For people: notes as "note    TEXT" on standard output, everything graver as a warning on standard error; ten of
/// each, all with -v, no warning with -q.
void print_findings(Context& context, std::span<const Finding> findings);

/// A finding in one line: its text, then tensor and file unless the text names them, and the offset.
std::string finding_text(const Finding& finding);

/// Prints text to standard output unless --json or, where `important` is false, --quiet.
void say(Context& context, std::string_view text, bool important = false);

/// A word of a shell command, quoted if necessary.
std::string shell_word(std::string_view word);
/// A path as such a word: one that begins with a dash gets "./" before it.
std::string shell_path(std::string_view path);

}  // namespace ckpt::cli
