#include "cli/output/row_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/output/json.hpp"

namespace ckpt::cli {
namespace {

/// Almost all text stands in JSON as it is.
bool stands_as_it_is(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

}  // namespace

void RowText::line() {
  if (!is_empty_) out_ += ',';
  out_ += '\n';
  out_.append(indent_, ' ');
  is_empty_ = false;
}

void RowText::name(std::string_view key) {
  line();
  out_ += '"';
  out_ += key;
  out_ += "\": ";
}

void RowText::begin_object() {
  out_ += '{';
  indent_ += 2;
  is_empty_ = true;
}

void RowText::end(char bracket) {
  indent_ -= 2;
  const bool was_empty = std::exchange(is_empty_, true);
  if (!was_empty) line();
  is_empty_ = false;
  out_ += bracket;
}

void RowText::number(std::string_view key, std::uint64_t value) {
  name(key);
  out_ += fmt::format_int(value).c_str();
}

void RowText::boolean(std::string_view key, bool value) {
  name(key);
  out_ += value ? "true" : "false";
}

void RowText::text(std::string_view key, std::string_view value) {
  name(key);
  if (stands_as_it_is(value)) {
    out_ += '"';
    out_ += value;
    out_ += '"';
    return;
  }
  const std::string valid = valid_utf8(value);
  out_ += without_hidden(Json(valid).dump());
  if (valid != value) text(std::string(key) + "_b64", base64(value));
}

void RowText::begin_array(std::string_view key) {
  name(key);
  out_ += '[';
  indent_ += 2;
  is_empty_ = true;
}

void RowText::begin_element() {
  line();
  begin_object();
}

void RowText::end_element() {
  end('}');
}

void RowText::end_array() {
  end(']');
}

std::string RowText::take() {
  end('}');
  return std::move(out_);
}

}  // namespace ckpt::cli
