#include "format/model/scalar_json.hpp"

#include <algorithm>

#include "format/text/parse_number.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::universal {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_exact(std::int64_t value) {
  constexpr auto kLimit = static_cast<std::int64_t>(kMaxJsonInteger);
  return value >= -kLimit && value <= kLimit;
}

Result<PathPart> read_part(const json::Value& value) {
  if (const std::string* text = value.text()) return PathPart(*text);
  if (const std::uint64_t* natural = value.natural(); natural != nullptr && *natural <= kMaxJsonInteger)
    return PathPart(static_cast<std::int64_t>(*natural));
  if (const std::int64_t* negative = value.negative(); negative != nullptr && is_exact(*negative))
    return PathPart(*negative);
  if (const json::Object* object = value.object(); object != nullptr && object->size() == 1) {
    const auto& [kind, content] = object->front();
    const std::string* text = content.text();
    if (text != nullptr && kind == "int" && is_large_decimal(*text)) {
      if (const auto large = parse_number<std::int64_t>(*text)) return PathPart(*large);
    }
    if (text != nullptr && kind == "text") {
      CKPT_TRY(std::string bytes, read_hex(*text));
      if (!is_utf8(bytes)) return PathPart(std::move(bytes));
    }
  }
  return fail(Errc::corrupt, "a path element that is neither text nor an integer");
}

}  // namespace

void put_natural(json::Writer& out, std::uint64_t value) {
  if (value <= kMaxJsonInteger) {
    out.value(value);
  } else {
    out.value(std::to_string(value));
  }
}

Result<std::uint64_t> read_natural(const json::Value& value) {
  if (const std::uint64_t* natural = value.natural(); natural != nullptr && *natural <= kMaxJsonInteger)
    return *natural;
  if (const std::string* text = value.text(); text != nullptr && is_large_decimal(*text)) {
    if (const auto large = parse_number<std::uint64_t>(*text)) return *large;
  }
  return fail(Errc::corrupt, "not an integer from 0 to 2^64 - 1");
}

void put_integer(json::Writer& out, std::int64_t value) {
  if (is_exact(value)) {
    out.value(value);
  } else {
    out.begin_object().member("int", std::to_string(value)).end_object();
  }
}

bool is_large_decimal(std::string_view text) {
  const bool minus = text.starts_with('-');
  const std::string_view digits = text.substr(minus ? 1 : 0);
  const bool decimal = !digits.empty() && digits.front() != '0' &&
                       std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return decimal && parse_number<std::uint64_t>(digits).value_or(kMaxJsonInteger + 1) > kMaxJsonInteger;
}

std::string hex_of(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    out += kHexDigits[static_cast<unsigned char>(c) >> 4];
    out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

Result<std::string> read_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return fail(Errc::corrupt, "an odd number of hexadecimal digits");
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const std::size_t high = kHexDigits.find(digits[i]);
    const std::size_t low = kHexDigits.find(digits[i + 1]);
    if (high == kHexDigits.npos || low == kHexDigits.npos)
      return fail(Errc::corrupt, "not lower-case hexadecimal digits");
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

void put_any_text(json::Writer& out, std::string_view text) {
  if (is_utf8(text)) {
    out.value(text);
  } else {
    out.begin_object().member("text", hex_of(text)).end_object();
  }
}

std::string shown_text(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string shown;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      shown += c;
    } else {
      shown += '%' + hex_of({&c, 1});
    }
  }
  return shown;
}

void put_path(json::Writer& out, const Path& path) {
  out.begin_array();
  for (const PathPart& part : path) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      put_any_text(out, *text);
    } else {
      put_integer(out, std::get<std::int64_t>(part));
    }
  }
  out.end_array();
}

Result<Path> read_path(const json::Value& value) {
  const json::Array* parts = value.array();
  if (parts == nullptr) return fail(Errc::corrupt, "a path that is not an array");
  Path path;
  path.reserve(parts->size());
  for (const json::Value& part : *parts) {
    CKPT_TRY(PathPart read, read_part(part));
    path.push_back(std::move(read));
  }
  return path;
}

}  // namespace ckpt::universal
