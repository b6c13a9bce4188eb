#include "format/files/zarr.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "format/checked.hpp"
#include "format/text/json.hpp"

namespace ckpt::zarr {
namespace {

constexpr std::size_t kMostDimensions = 32;  // NumPy's

struct NamedType {
  std::string_view name;
  Dtype dtype;
};
// NumPy's names, after the byte order, which one byte does not have.
constexpr std::array<NamedType, 13> kNumpyTypes{{{"b1", Dtype::boolean},
                                                 {"u1", Dtype::u8},
                                                 {"i1", Dtype::i8},
                                                 {"i2", Dtype::i16},
                                                 {"u2", Dtype::u16},
                                                 {"f2", Dtype::f16},
                                                 {"i4", Dtype::i32},
                                                 {"u4", Dtype::u32},
                                                 {"f4", Dtype::f32},
                                                 {"i8", Dtype::i64},
                                                 {"u8", Dtype::u64},
                                                 {"f8", Dtype::f64},
                                                 {"c8", Dtype::c64}}};
constexpr std::string_view kComplex128 = "c16";

Error corrupt(std::string reason) {
  return {.code = Errc::corrupt, .message = std::string(kArrayFile) + ": " + std::move(reason)};
}

Error unsupported(std::string reason) {
  return {.code = Errc::unsupported, .message = std::move(reason)};
}

Result<Shape> sizes(const json::Value& document, std::string_view key) {
  const json::Value* member = document.find(key);
  const json::Array* items = member == nullptr ? nullptr : member->array();
  if (items == nullptr || items->size() > kMostDimensions)
    return fail(corrupt("'" + std::string(key) + "' is no list of at most 32 sizes"));
  Shape out;
  for (const json::Value& item : *items) {
    if (item.natural() == nullptr) return fail(corrupt("'" + std::string(key) + "' has an item that is no size"));
    out.push_back(*item.natural());
  }
  return out;
}

Result<> take_type(const json::Value& document, Array& out) {
  const json::Value* member = document.find("dtype");
  const std::string* text = member == nullptr ? nullptr : member->text();
  if (text == nullptr) return fail(unsupported("arrays of records are not read"));
  const bool is_named = *text == "bfloat16" || text->starts_with("float8_");  // by tensorstore, little-endian
  if (const auto named = is_named ? dtype_from_torch(*text) : std::nullopt) {
    out.dtype = *named;
    return {};
  }
  const std::string_view type(*text);
  const auto found =
      type.empty() ? kNumpyTypes.end() : std::ranges::find(kNumpyTypes, type.substr(1), &NamedType::name);
  const bool has_order = type.starts_with('<') || type.starts_with('>');
  if (has_order && type.substr(1) == kComplex128) {
    out.dtype = Dtype::f64;
    out.is_complex128 = true;
  } else if (found != kNumpyTypes.end() && has_order != (dtype_bits(found->dtype) == 8)) {
    out.dtype = found->dtype;
  } else {
    return fail(unsupported("elements of type '" + text->substr(0, 32) + "' are not read"));
  }
  out.big_endian = type.starts_with('>');
  if (out.big_endian && out.dtype == Dtype::c64) return fail(unsupported("big-endian complex numbers are not read"));
  return {};
}

bool is_absent(const json::Value& document, std::string_view key) {
  const json::Value* member = document.find(key);
  return member == nullptr || std::holds_alternative<std::nullptr_t>(member->v) ||
         (member->array() != nullptr && member->array()->empty());
}

}  // namespace

Result<Array> parse_array(std::string_view text) {
  auto parsed = json::parse(text, {.max_bytes = kMostArrayFileBytes});
  if (!parsed) return fail(corrupt(parsed.error().message));
  const json::Value& document = *parsed;
  const json::Value* version = document.find("zarr_format");
  if (version == nullptr || version->natural() == nullptr) return fail(corrupt("no zarr_format"));
  if (*version->natural() != 2) return fail(unsupported("only version 2 of zarr is read"));
  if (!is_absent(document, "compressor") || !is_absent(document, "filters"))
    return fail(unsupported("compressed and filtered chunks are not read"));
  Array out;
  CKPT_CHECK(take_type(document, out));
  CKPT_TRY(out.shape, sizes(document, "shape"));
  CKPT_TRY(out.chunk, sizes(document, "chunks"));
  if (out.chunk.size() != out.shape.size() || std::ranges::find(out.chunk, 0U) != out.chunk.end())
    return fail(corrupt("'chunks' does not fit 'shape'"));
  const json::Value* order = document.find("order");
  const std::string* letter = order == nullptr ? nullptr : order->text();
  if (letter == nullptr || (*letter != "C" && *letter != "F")) return fail(corrupt("'order' is neither C nor F"));
  out.is_column_major = *letter == "F";
  if (const json::Value* separator = document.find("dimension_separator")) {
    const std::string* sign = separator->text();
    if (sign == nullptr || (*sign != "." && *sign != "/"))
      return fail(corrupt("'dimension_separator' is neither . nor /"));
    out.separator = sign->front();
  }
  out.chunk_bytes = dtype_bits(out.dtype) / 8 * (out.is_complex128 ? 2U : 1U);
  for (const std::uint64_t size : out.chunk) {
    CKPT_TRY(out.chunk_bytes, checked_mul(out.chunk_bytes, size));
  }
  return out;
}

std::string chunk_name(const Array& array, std::span<const std::uint64_t> chunk) {
  if (chunk.empty()) return "0";
  std::string out;
  for (const std::uint64_t number : chunk) {
    if (!out.empty()) out += array.separator;
    out += std::to_string(number);
  }
  return out;
}

}  // namespace ckpt::zarr
