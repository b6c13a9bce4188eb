#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "format/result.hpp"

namespace ckpt {

/// How ranks of one program write values to each other. Both ends are the same build on the same kind of machine, so
/// numbers are in its own byte order.
void append_number(std::string& text, std::uint64_t value);
/// The number at the start of `text`; 0 if that is too short.
std::uint64_t first_number(std::string_view text);

/// Bytes after their number.
void append_field(std::string& text, std::string_view field);

/// Takes values off the front of such a text; from the first that is cut short on all are empty and `bad` is true.
struct TextCursor {
  std::string_view rest;
  bool bad = false;

  std::uint64_t number();
  std::string field();
};

/// A failure as bytes and back (without its verdict). Text that to_text did not make gives `internal`.
std::string to_text(const Error& error);
Error error_from_text(std::string_view text);

}  // namespace ckpt
