#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ckpt::json {

/// Appends `text` as a JSON string. Escapes control characters, quotes and backslashes, nothing else; `text` must be
/// valid UTF-8.
void append_quoted(std::string& out, std::string_view text);

/// How a document is laid out.
struct Style {
  bool spaced = false;  ///< a blank after each comma and colon
  unsigned indent = 0;  ///< blanks per level, each element on a separate line; 0: lines break only at line()
  unsigned depth = 0;   ///< enclosing levels: for a part of a larger document
  void (*quote)(std::string& out, std::string_view text) = append_quoted;  ///< writes texts and keys
};

template <class Value>
constexpr bool is_optional = false;
template <class Value>
constexpr bool is_optional<std::optional<Value>> = true;

/// Appends JSON to a string as the calls come, without building a tree. Commas, colons and brackets are its own;
/// that keys and values alternate, are unique, and that everything opened is closed is the caller's part.
///
///     Writer out(text);
///     out.begin_object().member("step", 7).key("shape").value(shape).end_object();
class Writer {
 public:
  explicit Writer(std::string& out, Style style = {}) : out_(out), style_(style) {}

  Writer& begin_object() { return begin('{'); }
  Writer& end_object() { return end('}'); }
  Writer& begin_array() { return begin('['); }
  Writer& end_array() { return end(']'); }
  Writer& key(std::string_view name);

  /// A boolean, number, text, nullptr, an optional of one (null without), or an array of a range of them. Reals are the
  /// shortest text that reads back as the same number; NaN and infinity, which JSON lacks, are null.
  template <class Value>
  Writer& value(const Value& value) {
    if constexpr (std::same_as<Value, std::nullptr_t>) {
      return raw("null");
    } else if constexpr (std::same_as<Value, bool>) {
      return raw(value ? "true" : "false");
    } else if constexpr (std::floating_point<Value>) {
      return real(value);
    } else if constexpr (std::unsigned_integral<Value>) {
      return natural(value);
    } else if constexpr (std::signed_integral<Value>) {
      return value < 0 ? negative(value) : natural(static_cast<std::uint64_t>(value));
    } else if constexpr (std::convertible_to<const Value&, std::string_view>) {
      return text(value);
    } else if constexpr (is_optional<Value>) {
      return value ? this->value(*value) : raw("null");
    } else {
      begin_array();
      for (const auto& each : value) this->value(each);
      return end_array();
    }
  }
  template <class Value>
  Writer& member(std::string_view name, const Value& value) {
    return key(name).value(value);
  }
  /// A value that is JSON already.
  Writer& raw(std::string_view json);

  /// Puts `text`, a line break and perhaps blanks, before the next key, element or closing bracket.
  Writer& line(std::string_view text = "\n") {
    line_ = text;
    return *this;
  }

 private:
  Writer& begin(char bracket);
  Writer& end(char bracket);
  Writer& natural(std::uint64_t value);
  Writer& negative(std::int64_t value);
  Writer& real(double value);
  Writer& text(std::string_view value);
  void element();
  void break_line();

  std::string& out_;
  Style style_;
  std::string filled_{};  // of each open container, outermost first: whether it has an element
  std::string_view line_{};
  bool after_key_ = false;
};

}  // namespace ckpt::json
