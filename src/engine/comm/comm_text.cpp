#include "engine/comm/comm_text.hpp"

#include <cstring>

namespace ckpt {
void append_number(std::string& text, std::uint64_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  text.append(bytes, sizeof value);
}

std::uint64_t first_number(std::string_view text) {
  std::uint64_t value = 0;
  if (text.size() >= sizeof value) std::memcpy(&value, text.data(), sizeof value);
  return value;
}

void append_field(std::string& text, std::string_view field) {
  append_number(text, field.size());
  text += field;
}

std::uint64_t TextCursor::number() {
  if (bad || rest.size() < sizeof(std::uint64_t)) {
    bad = true;
    return 0;
  }
  const std::uint64_t value = first_number(rest);
  rest.remove_prefix(sizeof(std::uint64_t));
  return value;
}

std::string TextCursor::field() {
  const std::uint64_t bytes = number();
  if (bytes > rest.size()) {
    bad = true;
    return {};
  }
  std::string value(rest.substr(0, bytes));
  rest.remove_prefix(bytes);
  return value;
}

std::string to_text(const Error& error) {
  std::string text;
  append_number(text, static_cast<std::uint64_t>(error.code));
  append_field(text, error.message);
  append_field(text, error.file);
  append_number(text, error.offset ? 1 : 0);
  append_number(text, error.offset.value_or(0));
  append_field(text, error.tensor);
  append_field(text, error.hint);
  return text;
}

Error error_from_text(std::string_view text) {
  TextCursor cursor{.rest = text};
  Error error;
  error.code = static_cast<Errc>(cursor.number());
  error.message = cursor.field();
  error.file = cursor.field();
  const bool has_offset = cursor.number() != 0;
  const std::uint64_t offset = cursor.number();
  if (has_offset) error.offset = offset;
  error.tensor = cursor.field();
  error.hint = cursor.field();
  if (!cursor.bad && cursor.rest.empty()) return error;
  return {.code = Errc::internal, .message = "a failure that could not be read"};
}

}  // namespace ckpt
