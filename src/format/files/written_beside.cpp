#include "format/files/written_beside.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <system_error>

#include "format/files/extra_names.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt {

std::string build_written_beside(const WrittenBeside& files) {
  std::string text;
  json::Writer out(text);
  out.begin_object();
  for (const auto& [path, hash] : files) out.member(path, fmt::format("{:016x}", hash));
  out.end_object();
  return text;
}

WrittenBeside parse_written_beside(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  WrittenBeside out;
  const auto document = json::parse(text);
  if (!document || document->object() == nullptr) return {};
  for (const auto& [path, value] : *document->object()) {
    const std::string* digits = value.text();
    if (!is_extra_name(path) || digits == nullptr || digits->size() != kDigits) return {};
    std::uint64_t hash = 0;
    const auto [end, error] = std::from_chars(digits->data(), digits->data() + kDigits, hash, 16);
    if (error != std::errc() || end != digits->data() + kDigits) return {};
    out.emplace_back(path, hash);
  }
  return out;
}

}  // namespace ckpt
