#include "format/text/utf8.hpp"

#include <algorithm>
#include <array>

namespace ckpt {

CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  std::size_t bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) bytes = 2;
  if (first >= 0xe0 && first <= 0xef) {
    bytes = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    bytes = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  }
  if (bytes == 0 || text.size() < bytes || byte(1) < low || byte(1) > high) return {};
  std::uint32_t value = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  return {value, bytes};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (point.bytes == 0) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

namespace {

struct Span {
  std::uint32_t first;
  std::uint32_t last;
};

template <std::size_t count>
bool is_in(const std::array<Span, count>& spans, std::uint32_t code_point) {
  return std::any_of(spans.begin(), spans.end(),
                     [&](const Span& span) { return code_point >= span.first && code_point <= span.last; });
}

}  // namespace

bool is_hidden(std::uint32_t code_point) {
  // Unicode's general categories Cc, Cf, Zl and Zp, as far as they do not shape a script's letters.
  static constexpr std::array<Span, 11> spans{{{0x00, 0x1f},
                                               {0x7f, 0x9f},
                                               {0xad, 0xad},
                                               {0x61c, 0x61c},
                                               {0x180e, 0x180e},
                                               {0x200b, 0x200f},
                                               {0x2028, 0x202e},
                                               {0x2060, 0x206f},
                                               {0xfeff, 0xfeff},
                                               {0xfff9, 0xfffb},
                                               {0xe0000, 0xe007f}}};
  return is_in(spans, code_point);
}

std::size_t columns_of(std::uint32_t code_point) {
  static constexpr std::array<Span, 5> marks{
      {{0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
  static constexpr std::array<Span, 14> wide{{{0x1100, 0x115f},
                                              {0x2e80, 0x303e},
                                              {0x3041, 0x33ff},
                                              {0x3400, 0x4dbf},
                                              {0x4e00, 0x9fff},
                                              {0xa000, 0xa4cf},
                                              {0xac00, 0xd7a3},
                                              {0xf900, 0xfaff},
                                              {0xfe30, 0xfe6f},
                                              {0xff00, 0xff60},
                                              {0xffe0, 0xffe6},
                                              {0x1f300, 0x1f64f},
                                              {0x1f680, 0x1f9ff},
                                              {0x20000, 0x3fffd}}};
  if (code_point < 0x300) return 1;
  return is_in(marks, code_point) ? 0 : is_in(wide, code_point) ? 2 : 1;
}

}  // namespace ckpt
