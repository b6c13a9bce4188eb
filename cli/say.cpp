#include <fmt/format.h>

#include "cli/commands.hpp"

namespace ckpt::cli {

Answer failed(Error error, std::string effect) {
  Answer out;
  out.exit_code = exit_code(error.code);
  out.failures.push_back({.error = std::move(error), .effect = std::move(effect)});
  return out;
}

void take_warnings(Answer& answer, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    if (finding.severity != Severity::note) answer.warnings.push_back(finding);
}

std::string finding_text(const Finding& finding) {
  std::string out = printable(finding.text);
  const auto append = [&](std::string_view name, const std::string& value) {
    if (!value.empty() && finding.text.find(value) == std::string::npos)
      out += fmt::format("   {} {}", name, printable(value));
  };
  append("tensor", finding.tensor);
  append("file", finding.file);
  return out;
}

void say(Context& context, std::string_view text, bool important) {
  if (context.settings.json || (context.settings.quiet && !important)) return;
  context.console.out(text);
}

void print_notes(Context& context, const std::vector<Finding>& findings) {
  constexpr std::size_t shown_by_default = 10;
  std::size_t count = 0;
  for (const Finding& finding : findings) {
    if (finding.severity != Severity::note) continue;
    if (++count <= shown_by_default || context.settings.verbose > 0)
      say(context, fmt::format("note    {}\n", finding_text(finding)));
  }
  if (count > shown_by_default && context.settings.verbose == 0)
    say(context, fmt::format("note    {} more; -v shows all\n", format_count(count - shown_by_default)));
}

std::string shell_word(std::string_view path) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+,:@%";
  const std::string word = (path.starts_with("-") ? "./" : "") + std::string(path);
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace ckpt::cli
