#include "format/torch/pickle_graph.hpp"

namespace ckpt::pickle {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The value of `digits` hex digits at `at`, or -1.
std::int64_t hex_value(std::string_view text, std::size_t at, std::size_t digits) {
  if (text.size() < digits || at > text.size() - digits) return -1;
  std::int64_t value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const int digit = hex_digit(text[at + i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// The one-character escapes of a Python string, or -1.
int simple_escape(char c) {
  switch (c) {
    case '\\':
    case '\'':
    case '"':
      return c;
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return -1;
  }
}

}  // namespace

std::string decimal_of(std::span<const std::byte> little_endian) {
  if (little_endian.empty()) return "0";
  const bool negative = (std::to_integer<unsigned>(little_endian.back()) & 0x80u) != 0;
  // The magnitude, as digits of base 10^9, least significant first; bytes are taken from the most significant on.
  constexpr std::uint64_t kBase = 1'000'000'000;
  std::vector<std::uint32_t> digits{0};
  std::vector<unsigned> magnitude(little_endian.size());
  unsigned carry = negative ? 1 : 0;
  for (std::size_t i = 0; i < magnitude.size(); ++i) {
    const unsigned byte = std::to_integer<unsigned>(little_endian[i]);
    const unsigned sum = (negative ? byte ^ 0xffu : byte) + carry;
    magnitude[i] = sum & 0xffu;
    carry = sum >> 8;
  }
  if (carry != 0) magnitude.push_back(carry);
  for (std::size_t i = magnitude.size(); i-- > 0;) {
    std::uint64_t rest = magnitude[i];
    for (std::uint32_t& digit : digits) {
      const std::uint64_t value = digit * std::uint64_t{256} + rest;
      digit = static_cast<std::uint32_t>(value % kBase);
      rest = value / kBase;
    }
    if (rest != 0) digits.push_back(static_cast<std::uint32_t>(rest));
  }
  std::string text = (negative ? "-" : "") + std::to_string(digits.back());
  for (std::size_t i = digits.size() - 1; i-- > 0;) {
    const std::string part = std::to_string(digits[i]);
    text.append(9 - part.size(), '0').append(part);
  }
  return text;
}

bool is_text(std::string_view bytes) {
  std::size_t i = 0;
  const auto at = [&](std::size_t k) { return static_cast<unsigned char>(bytes[k]); };
  const auto follows = [&](std::size_t k) { return k < bytes.size() && (at(k) & 0xc0u) == 0x80u; };
  while (i < bytes.size()) {
    const unsigned char lead = at(i);
    if (lead < 0x80) {
      i += 1;
    } else if (lead >= 0xc2 && lead < 0xe0) {
      if (!follows(i + 1)) return false;
      i += 2;
    } else if (lead >= 0xe0 && lead < 0xf0) {
      if (!follows(i + 1) || !follows(i + 2) || (lead == 0xe0 && at(i + 1) < 0xa0)) return false;
      i += 3;
    } else if (lead >= 0xf0 && lead < 0xf5) {
      if (!follows(i + 1) || !follows(i + 2) || !follows(i + 3)) return false;
      if ((lead == 0xf0 && at(i + 1) < 0x90) || (lead == 0xf4 && at(i + 1) >= 0x90)) return false;
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

void append_utf8(std::string& out, std::uint32_t code_point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

bool decode_unicode_line(std::string_view line, std::string& out) {
  out.clear();
  std::size_t i = 0;
  while (i < line.size()) {
    const bool escape = line[i] == '\\' && i + 1 < line.size() && (line[i + 1] == 'u' || line[i + 1] == 'U');
    if (!escape) {
      append_utf8(out, static_cast<unsigned char>(line[i++]));  // everything else is Latin-1
      continue;
    }
    const std::size_t digits = line[i + 1] == 'u' ? 4 : 8;
    const std::int64_t value = hex_value(line, i + 2, digits);
    if (value < 0 || value > 0x10ffff) return false;
    append_utf8(out, static_cast<std::uint32_t>(value));
    i += 2 + digits;
  }
  return true;
}

bool decode_string_line(std::string_view line, std::string& out) {
  out.clear();
  if (line.size() < 2 || (line.front() != '\'' && line.front() != '"') || line.back() != line.front()) return false;
  line = line.substr(1, line.size() - 2);
  std::size_t i = 0;
  while (i < line.size()) {
    if (line[i] != '\\') {
      out.push_back(line[i++]);
      continue;
    }
    if (i + 1 == line.size()) return false;
    const char kind = line[i + 1];
    if (const int simple = simple_escape(kind); simple >= 0) {
      out.push_back(static_cast<char>(simple));
      i += 2;
    } else if (kind == 'x') {
      const std::int64_t value = hex_value(line, i + 2, 2);
      if (value < 0) return false;
      out.push_back(static_cast<char>(value));
      i += 4;
    } else {
      return false;  // octal escapes: Python's repr never writes them
    }
  }
  return true;
}

}  // namespace ckpt::pickle
