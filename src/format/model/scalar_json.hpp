#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "format/model/value.hpp"
#include "format/result.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

/// How our JSON files write values that JSON lacks: FORMAT.md sections 1 and 7.1.
namespace ckpt::universal {

constexpr std::uint64_t kMaxJsonInteger = (std::uint64_t{1} << 53) - 1;  // exact in every JSON reader

/// A number up to 2^53 - 1, else decimal text.
void put_natural(json::Writer& out, std::uint64_t value);
/// errors   corrupt: not such a number or text; the message is the reason alone
Result<std::uint64_t> read_natural(const json::Value& value);

/// A number within +-(2^53 - 1), else {"int":"decimal"}.
void put_integer(json::Writer& out, std::int64_t value);
/// True for decimal digits without leading zeros, with a minus sign where negative, that JSON cannot hold exactly.
bool is_large_decimal(std::string_view text);

/// Two lower-case digits a byte.
std::string hex_of(std::string_view bytes);
/// corrupt: an odd length, or anything but lower-case digits; the message is the reason alone
Result<std::string> read_hex(std::string_view digits);

/// Text that is UTF-8 as a string, other text as {"text":"hex"}.
void put_any_text(json::Writer& out, std::string_view text);
/// Text for people: unchanged if it is UTF-8, else with every non-ASCII byte as %XX.
std::string shown_text(std::string_view text);

/// An array of text and integers.
void put_path(json::Writer& out, const Path& path);
/// errors   corrupt: anything else; the message is the reason alone
Result<Path> read_path(const json::Value& value);

}  // namespace ckpt::universal
