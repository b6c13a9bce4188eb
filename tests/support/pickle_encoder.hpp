#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "format/model/value.hpp"

namespace ckpt::test {

/// Pickles a value as Python's pickler of this protocol would, except for its choice among equal spellings. Text is
/// ASCII.
inline void encode_into(const Value& value, int protocol, std::string& out) {
  const auto little = [&](std::uint64_t number, unsigned width) {
    for (unsigned i = 0; i < width; ++i) out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  };
  const auto text = [&](std::string_view data) {
    if (protocol == 0) {
      out += 'V';
      constexpr std::string_view kDigits = "0123456789abcdef";
      for (const char c : data) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte == '\n' || byte == '\\') {
          out.append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
        } else {
          out += c;
        }
      }
      out += '\n';
    } else if (protocol >= 4 && data.size() < 256) {
      out += '\x8c';
      little(data.size(), 1);
      out += data;
    } else {
      out += 'X';
      little(data.size(), 4);
      out += data;
    }
  };
  const auto integer = [&](std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    if (protocol == 0) {
      out.append("L").append(std::to_string(number)).append("L\n");
    } else if (number >= 0 && number < 256) {
      out += 'K';
      little(bits, 1);
    } else if (number >= 0 && number < 65536) {
      out += 'M';
      little(bits, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
      out += 'J';
      little(bits, 4);
    } else {
      out += '\x8a';
      little(8, 1);
      little(bits, 8);
    }
  };
  const auto bytes = [&](const std::string& data) {
    if (protocol >= 3) {
      out += 'B';
      little(data.size(), 4);
      out += data;
      return;
    }
    out += "c_codecs\nencode\n(X";  // Latin-1 characters as UTF-8
    std::string characters;
    for (const char c : data) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        characters += c;
      } else {
        characters += static_cast<char>(0xc0 | byte >> 6);
        characters += static_cast<char>(0x80 | (byte & 0x3f));
      }
    }
    little(characters.size(), 4);
    out += characters;
    out += "X";
    little(6, 4);
    out += "latin1tR";
  };
  const auto list = [&](const List& held) {
    const bool by_call = held.kind == List::Kind::set && protocol < 4;
    if (by_call) out += "c__builtin__\nset\n(";
    if (held.kind == List::Kind::list || by_call) out += "]";
    if (held.kind == List::Kind::set && !by_call) out += '\x8f';
    out += '(';
    for (const ValuePtr& item : held.items) encode_into(*item, protocol, out);
    out += held.kind == List::Kind::tuple ? 't' : (held.kind == List::Kind::set && !by_call ? '\x90' : 'e');
    if (by_call) out += "tR";
  };
  if (std::holds_alternative<None>(value.v)) out += 'N';
  if (const auto* flag = std::get_if<bool>(&value.v)) {
    if (protocol == 0) {
      out += *flag ? "I01\n" : "I00\n";
    } else {
      out += *flag ? '\x88' : '\x89';
    }
  }
  if (const auto* number = std::get_if<std::int64_t>(&value.v)) integer(*number);
  if (const auto* real = std::get_if<double>(&value.v)) {
    const auto bits = std::bit_cast<std::uint64_t>(*real);
    out += 'G';
    for (unsigned i = 8; i-- > 0;) out.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
  }
  if (const auto* held = std::get_if<std::string>(&value.v)) text(*held);
  if (const auto* held = std::get_if<Bytes>(&value.v)) bytes(held->data);
  if (const auto* held = std::get_if<List>(&value.v)) list(*held);
  if (const auto* held = std::get_if<Dict>(&value.v)) {
    out += "}(";
    for (const auto& [key, item] : held->items) {
      encode_into(*key, protocol, out);
      encode_into(*item, protocol, out);
    }
    out += 'u';
  }
}

inline std::string encode(const Value& value, int protocol) {
  std::string out;
  if (protocol >= 2) out += std::string{'\x80', static_cast<char>(protocol)};
  std::string body;
  encode_into(value, protocol, body);
  body += '.';
  if (protocol >= 4) {
    out += '\x95';
    for (unsigned i = 0; i < 8; ++i) out.push_back(static_cast<char>(body.size() >> (8 * i) & 0xff));
  }
  return out + body;
}

/// Equal in type and value; floats by their bits.
inline bool equal(const Value& a, const Value& b) {
  if (a.v.index() != b.v.index()) return false;
  if (const auto* list = std::get_if<List>(&a.v)) {
    const auto& other = std::get<List>(b.v);
    if (list->kind != other.kind || list->items.size() != other.items.size()) return false;
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (!equal(*list->items[i], *other.items[i])) return false;
    }
    return true;
  }
  if (const auto* dict = std::get_if<Dict>(&a.v)) {
    const auto& other = std::get<Dict>(b.v);
    if (dict->items.size() != other.items.size()) return false;
    for (std::size_t i = 0; i < dict->items.size(); ++i) {
      if (!equal(*dict->items[i].first, *other.items[i].first)) return false;
      if (!equal(*dict->items[i].second, *other.items[i].second)) return false;
    }
    return true;
  }
  if (const auto* real = std::get_if<double>(&a.v)) {
    return std::bit_cast<std::uint64_t>(*real) == std::bit_cast<std::uint64_t>(std::get<double>(b.v));
  }
  if (const auto* flag = std::get_if<bool>(&a.v)) return *flag == std::get<bool>(b.v);
  if (const auto* number = std::get_if<std::int64_t>(&a.v)) return *number == std::get<std::int64_t>(b.v);
  if (const auto* text = std::get_if<std::string>(&a.v)) return *text == std::get<std::string>(b.v);
  if (const auto* bytes = std::get_if<Bytes>(&a.v)) return bytes->data == std::get<Bytes>(b.v).data;
  return std::holds_alternative<None>(a.v);
}

}  // namespace ckpt::test
