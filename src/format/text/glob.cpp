#include "format/text/glob.hpp"

#include <cstddef>

namespace ckpt {
namespace {

/// Matches one character against the class that starts at glob[at] == '['; moves `at` past its ']'.
bool in_class(std::string_view glob, std::size_t& at, char c) {
  std::size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (bool first = true; i < glob.size() && (glob[i] != ']' || first); ++i, first = false) {
    if (i + 2 < glob.size() && glob[i + 1] == '-' && glob[i + 2] != ']') {
      found = found || (glob[i] <= c && c <= glob[i + 2]);
      i += 2;
    } else {
      found = found || glob[i] == c;
    }
  }
  if (i >= glob.size()) return c == '[';  // no closing bracket: the bracket is literal
  at = i;
  return found != negated;
}

}  // namespace

bool matches_glob(std::string_view name, std::string_view glob) {
  std::size_t n = 0;
  std::size_t g = 0;
  std::size_t star = std::string_view::npos;  // where to backtrack: the last '*' and the text it took
  std::size_t taken = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      taken = n;
      continue;
    }
    std::size_t next = g;
    const bool hit =
        g < glob.size() && (glob[g] == '?' || (glob[g] == '[' ? in_class(glob, next, name[n]) : glob[g] == name[n]));
    if (hit) {
      g = next + 1;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace ckpt
