#include "format/text/json_writer.hpp"

#include <fmt/format.h>

#include <cmath>

namespace ckpt::json {
namespace {

/// The escape of a character inside a string; empty if it needs none.
std::string_view escape_of(char c, std::string& buffer) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      if (static_cast<unsigned char>(c) >= 0x20) return {};
      buffer = fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
      return buffer;
  }
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  std::string buffer;
  std::size_t copied = 0;
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view escape = escape_of(text[i], buffer);
    if (escape.empty()) continue;
    out.append(text, copied, i - copied);
    out += escape;
    copied = i + 1;
  }
  out.append(text, copied);
  out += '"';
}

Writer& Writer::key(std::string_view name) {
  element();
  style_.quote(out_, name);
  out_ += style_.spaced || style_.indent != 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

Writer& Writer::raw(std::string_view json) {
  element();
  out_ += json;
  return *this;
}

Writer& Writer::begin(char bracket) {
  element();
  out_ += bracket;
  filled_ += '\0';
  return *this;
}

Writer& Writer::end(char bracket) {
  const bool had_elements = filled_.back() != '\0';
  filled_.pop_back();
  if (!line_.empty()) {
    out_ += std::exchange(line_, {});
  } else if (had_elements && style_.indent != 0) {
    break_line();
  }
  out_ += bracket;
  return *this;
}

Writer& Writer::natural(std::uint64_t value) {
  const fmt::format_int digits(value);
  return raw({digits.data(), digits.size()});
}

Writer& Writer::negative(std::int64_t value) {
  const fmt::format_int digits(value);
  return raw({digits.data(), digits.size()});
}

Writer& Writer::real(double value) {
  if (!std::isfinite(value)) return raw("null");
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_not_of("-0123456789") == digits.npos) digits += ".0";  // a real stays one when it is read
  return raw(digits);
}

Writer& Writer::text(std::string_view value) {
  element();
  style_.quote(out_, value);
  return *this;
}

/// The text before a key, or before a value without one.
void Writer::element() {
  if (std::exchange(after_key_, false) || filled_.empty()) return;
  const bool is_first = filled_.back() == '\0';
  filled_.back() = '\1';
  if (!is_first) out_ += ',';
  if (!line_.empty()) {
    out_ += std::exchange(line_, {});
  } else if (style_.indent != 0) {
    break_line();
  } else if (!is_first && style_.spaced) {
    out_ += ' ';
  }
}

void Writer::break_line() {
  out_ += '\n';
  out_.append(style_.indent * (style_.depth + filled_.size()), ' ');
}

}  // namespace ckpt::json
