#include "engine/locks/claim_name.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kDigits = 32;
constexpr std::size_t kMostHost = 64;
constexpr std::string_view kNoBoot = "00000000000000000000000000000000";

bool is_hex(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool fits_host(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || c == '.' || c == '_' || c == '-';
}

/// Removes the part after the last `mark` from the end of `text`, and returns it.
std::optional<std::string_view> take_last(std::string_view& text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(at + 1);
  text = text.substr(0, at);
  return out;
}

template <class Number>
bool take_last_number(std::string_view& text, char mark, Number& out) {
  const auto word = take_last(text, mark);
  const auto number = word ? parse_number<Number>(*word) : std::nullopt;
  if (number) out = *number;
  return number.has_value();
}

}  // namespace

std::string claim_host(std::string_view host) {
  std::string out(host.substr(0, kMostHost));
  std::ranges::replace_if(
      out, [](char c) { return !fits_host(c); }, '_');
  return out;
}

std::string ClaimName::text() const {
  return fmt::format("{}-{}-{}-{}-{}-{}.{}", key, claim_host(maker.host), maker.boot.empty() ? kNoBoot : maker.boot,
                     maker.pid_namespace, maker.pid, maker.started, number);
}

std::string ClaimName::who() const {
  return fmt::format("host {} pid {}", maker.host.empty() ? "?" : maker.host, maker.pid);
}

std::optional<ClaimName> ClaimName::parse(std::string_view text) {
  ClaimName out;
  std::string_view left = text;
  if (!take_last_number(left, '.', out.number) || !take_last_number(left, '-', out.maker.started) ||
      !take_last_number(left, '-', out.maker.pid) || !take_last_number(left, '-', out.maker.pid_namespace))
    return std::nullopt;
  const auto boot = take_last(left, '-');
  if (!boot || !is_hex(*boot)) return std::nullopt;
  if (*boot != kNoBoot) out.maker.boot = *boot;
  if (left.size() < kDigits + 1 || left[kDigits] != '-' || !is_hex(left.substr(0, kDigits))) return std::nullopt;
  out.key = left.substr(0, kDigits);
  out.maker.host = left.substr(kDigits + 1);
  if (out.text() != text) return std::nullopt;
  return out;
}

}  // namespace ckpt
