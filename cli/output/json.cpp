#include "cli/output/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "format/text/utf8.hpp"

namespace ckpt::cli {
namespace {

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = first_code_point(text).bytes;
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, bytes);
      text.remove_prefix(bytes);
    }
  }
  return out;
}

/// JSON text in which characters that terminals hide are escaped. They occur in strings only; ASCII ones except DEL are
/// already escaped.
std::string without_hidden(const std::string& quoted) {
  std::string out;
  for (std::string_view rest = quoted; !rest.empty();) {
    const CodePoint one = first_code_point(rest);
    const std::string_view bytes = rest.substr(0, std::max<std::size_t>(1, one.bytes));
    rest.remove_prefix(bytes.size());
    if (one.value < 0x7f || !is_hidden(one.value)) {
      out += bytes;
    } else if (one.value < 0x10000) {
      out += fmt::format("\\u{:04x}", one.value);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (one.value >> 10), 0xdc00 + (one.value & 0x3ff));
    }
  }
  return out;
}

void append_shown(std::string& out, std::string_view text) {
  if (is_ascii(text) && text.find('\x7f') == std::string_view::npos) {
    json::append_quoted(out, text);
    return;
  }
  std::string quoted;
  json::append_quoted(quoted, valid_utf8(text));
  out += without_hidden(quoted);
}

}  // namespace

json::Writer document_writer(std::string& text) {
  return json::Writer(text, {.indent = 2, .quote = append_shown});
}

json::Writer data_writer(std::string& data) {
  return json::Writer(data, {.indent = 2, .depth = 1, .quote = append_shown});
}

json::Writer line_writer(std::string& line) {
  return json::Writer(line, {.quote = append_shown});
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out.push_back(k <= have ? letters[group >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

void put_text(json::Writer& out, std::string_view key, std::string_view text) {
  out.member(key, text);
  if (!is_ascii(text) && valid_utf8(text) != text) out.member(fmt::format("{}_b64", key), base64(text));
}

void put_optional(json::Writer& out, std::string_view key, std::string_view text) {
  out.member(key, text.empty() ? std::nullopt : std::optional(text));
}

}  // namespace ckpt::cli
