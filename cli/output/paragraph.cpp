#include "cli/output/paragraph.hpp"

#include <algorithm>

#include "cli/output/console.hpp"

namespace ckpt::cli {
namespace {

/// Columns of a word, in which inks ("\x1b[1;31m") take none.
std::size_t columns_of_word(std::string_view word) {
  std::size_t columns = 0;
  while (!word.empty()) {
    const std::size_t ink = std::min(word.find('\x1b'), word.size());
    columns += text_width(word.substr(0, ink));
    word.remove_prefix(ink);
    word.remove_prefix(std::min(word.find('m'), word.size()));
    if (!word.empty()) word.remove_prefix(1);
  }
  return columns;
}

std::string fitted_line(std::string_view line, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t used = 0;    // columns of the line that `out` ends with
  std::size_t blanks = 0;  // before the next word
  while (!line.empty()) {
    if (line.front() == ' ') {
      ++blanks;
      line.remove_prefix(1);
      continue;
    }
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    const std::size_t columns = columns_of_word(word);
    if (used > indent && used + blanks + columns > width) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else {
      out.append(blanks, ' ');
      used += blanks;
    }
    out += word;
    used += columns;
    blanks = 0;
  }
  return out;
}

}  // namespace

std::string fitted(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(line.size());
    if (columns_of_word(line) <= width) {
      out += line;
    } else {
      out += fitted_line(line, indent, width);
    }
    if (!text.empty()) {
      out += '\n';
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  return fitted(std::string(indent, ' ') + std::string(text), indent, width) + "\n";
}

}  // namespace ckpt::cli
