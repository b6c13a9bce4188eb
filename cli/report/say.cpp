#include "cli/report/say.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output/paragraph.hpp"
#include "format/text/utf8.hpp"

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

namespace {

/// "shards/a.safetensors" of a path: a text that has these names the file.
std::string_view last_two_parts(std::string_view path) {
  const std::size_t last = path.rfind('/');
  const std::size_t before = last == 0 || last == path.npos ? path.npos : path.rfind('/', last - 1);
  return before == path.npos ? path : path.substr(before + 1);
}

}  // namespace

std::string finding_text(const Finding& finding) {
  std::string out = printable(finding.text);
  const auto append = [&](std::string_view name, const std::string& value, std::string_view named_as) {
    if (!value.empty() && finding.text.find(named_as) == std::string::npos)
      out += fmt::format("   {} {}", name, printable(value));
  };
  append("tensor", finding.tensor, finding.tensor);
  append("file", finding.file, last_two_parts(finding.file));
  if (finding.offset && !finding.file.empty()) out += fmt::format("   offset {}", *finding.offset);
  return out;
}

void say(Context& context, std::string_view text, bool important) {
  if (context.settings.json || (context.settings.quiet && !important)) return;
  context.console.out(text);
}

void say_fitted(Context& context, std::string_view text, std::size_t indent) {
  say(context, fitted(text, indent, context.console.table_width()));
}

void print_findings(Context& context, std::span<const Finding> findings) {
  if (context.settings.json) return;
  constexpr std::size_t shown_by_default = 10;
  const bool quiet = context.settings.quiet;
  const std::size_t most = quiet || context.settings.verbose > 0 ? findings.size() : shown_by_default;
  Console& console = context.console;
  std::size_t notes = 0;
  std::size_t warnings = 0;
  for (const Finding& finding : findings) {
    const std::string text = finding_text(finding);
    if (finding.severity == Severity::note) {
      if (++notes <= most) say_fitted(context, fmt::format("note    {}\n", text), 8);
      continue;
    }
    std::string line = fmt::format("{} {}", console.paint_err(Ink::yellow, "warning:"), text);
    if (!quiet) line = fitted(line, 2, console.error_width());
    if (++warnings <= most)
      console.err(line);
    else
      console.log(line);
  }
  if (notes > most) say(context, fmt::format("note    {} more; -v shows all\n", format_count(notes - most)));
  if (warnings > most) console.err(fmt::format("warning: {} more; -v shows all", format_count(warnings - most)));
}

std::string shell_path(std::string_view path) {
  return shell_word((path.starts_with("-") ? "./" : "") + std::string(path));
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return std::string(word);
  if (printable(word) != word) {
    std::string escaped = "$'";  // bash, zsh and ksh read this; printed raw, a terminal would act on it
    while (!word.empty()) {
      const CodePoint one = first_code_point(word);
      const std::string_view bytes = word.substr(0, std::max<std::size_t>(1, one.bytes));
      word.remove_prefix(bytes.size());
      if (one.bytes == 0 || is_hidden(one.value)) {
        for (const char c : bytes) escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        if (bytes == "'" || bytes == "\\") escaped += '\\';
        escaped += bytes;
      }
    }
    return escaped + "'";
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string store_option(const Words& words) {
  const bool by_place = words.verb != nullptr && words.verb->arguments == "[STORE]" && !words.arguments.empty();
  if (by_place) return " --store " + shell_path(words.arguments.front());
  const Value* value = words.value("store");
  if (value == nullptr || value->origin != "--store") return {};
  return " --store " + shell_path(value->text);
}

}  // namespace ckpt::cli
