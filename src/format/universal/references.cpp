#include "format/universal/references.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "format/checked.hpp"
#include "format/model/scalar_json.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> bad_reference(std::string_view member, std::string_view reason) {
  return fail(Errc::corrupt, fmt::format("{}: {}", member, reason));
}

Result<std::string> reference_text(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->text() == nullptr) return bad_reference(key, "missing, or not text");
  return *value->text();
}

Result<std::uint64_t> reference_natural(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return bad_reference(key, "missing");
  const auto natural = read_natural(*value);
  if (!natural) return bad_reference(key, natural.error().message);
  return *natural;
}

Result<const json::Array*> reference_array(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->array() == nullptr) return bad_reference(key, "missing, or not an array");
  return value->array();
}

/// Numbers below `limit`.
template <class Number>
Result<std::vector<Number>> reference_numbers(const json::Value& value, std::string_view key, std::uint64_t limit) {
  if (value.array() == nullptr) return bad_reference(key, "not an array");
  std::vector<Number> out;
  out.reserve(value.array()->size());
  for (const json::Value& item : *value.array()) {
    const auto natural = read_natural(item);
    if (!natural) return bad_reference(key, natural.error().message);
    if (*natural >= limit) return bad_reference(key, "a number that is too large");
    out.push_back(static_cast<Number>(*natural));
  }
  return out;
}

template <class Numbers>
void put_all(json::Writer& out, const Numbers& numbers) {
  out.begin_array();
  for (const auto number : numbers) put_natural(out, static_cast<std::uint64_t>(number));
  out.end_array();
}

/// A path below a source stays there.
bool is_below(std::string_view path) {
  if (path.empty()) return true;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return path.find('\0') == path.npos;
}

Result<ReferencedFile> read_referenced_file(const json::Value& value) {
  ReferencedFile out;
  CKPT_TRY(out.path, reference_text(value, "path"));
  if (!is_below(out.path)) return bad_reference("path", "leads out of its source");
  CKPT_TRY(out.bytes, reference_natural(value, "bytes"));
  if (out.bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return bad_reference("bytes", "too many");
  CKPT_TRY(const std::uint64_t mtime, reference_natural(value, "mtime"));
  out.mtime_ns = static_cast<std::int64_t>(mtime);
  CKPT_TRY(const std::string head, reference_text(value, "head"));
  const auto hash = Hash128::from_hex(head);
  if (!hash) return bad_reference("head", "not 32 lower-case hexadecimal digits");
  out.head = *hash;
  return out;
}

Result<Extent> read_extent(const json::Value& value, std::string_view key) {
  CKPT_TRY(const auto ends, reference_numbers<std::uint64_t>(value, key, UINT64_MAX));
  if (ends.size() != 2 || ends[0] > ends[1]) return bad_reference(key, "not a begin and an end");
  return Extent{ends[0], ends[1]};
}

Result<Box> read_box(const json::Value& value) {
  if (value.array() == nullptr || value.array()->size() != 2) return bad_reference("box", "not offsets and sizes");
  Box box;
  CKPT_TRY(box.offset, reference_numbers<std::uint64_t>((*value.array())[0], "box", UINT64_MAX));
  CKPT_TRY(box.size, reference_numbers<std::uint64_t>((*value.array())[1], "box", UINT64_MAX));
  return box;
}

Result<Crc> read_crc(const json::Value& value) {
  CKPT_TRY(const auto parts, reference_numbers<std::uint64_t>(value, "crc", UINT64_MAX));
  if (parts.size() != 3 || parts[0] > parts[1] || parts[2] > UINT32_MAX)
    return bad_reference("crc", "not a range and a CRC-32");
  return Crc{.begin = parts[0], .end = parts[1], .value = static_cast<std::uint32_t>(parts[2])};
}

Result<PlacedChunk> read_chunk(const json::Value& value, const Tensor& tensor) {
  constexpr std::uint64_t kMostStride = std::uint64_t{1} << 62;
  if (value.object() == nullptr) return bad_reference("chunks", "holds something other than objects");
  PlacedChunk out{.chunk = {.box = Box::whole(tensor.shape)}, .where = {.dtype = tensor.dtype}};
  CKPT_TRY(const std::uint64_t file, reference_natural(value, "file"));
  if (file > UINT32_MAX) return bad_reference("file", "2^32 or more");
  out.where.file = static_cast<std::uint32_t>(file);
  CKPT_TRY(out.where.offset, reference_natural(value, "offset"));
  if (const json::Value* box = value.find("box")) {
    CKPT_TRY(out.chunk.box, read_box(*box));
  }
  if (const json::Value* flat = value.find("flat")) {
    CKPT_TRY(out.chunk.flat, read_extent(*flat, "flat"));
  }
  if (const json::Value* strides = value.find("strides")) {
    CKPT_TRY(out.where.strides, reference_numbers<std::int64_t>(*strides, "strides", kMostStride));
  }
  if (value.find("dtype") != nullptr) {
    CKPT_TRY(const std::string name, reference_text(value, "dtype"));
    const auto dtype = dtype_from_name(name);
    if (!dtype) return bad_reference("dtype", fmt::format("'{}' is not known", name));
    out.where.dtype = *dtype;
  }
  if (const json::Value* big = value.find("big_endian")) {
    if (big->boolean() == nullptr) return bad_reference("big_endian", "neither true nor false");
    out.where.big_endian = *big->boolean();
  }
  if (const json::Value* crc = value.find("crc")) {
    CKPT_TRY(out.where.crc, read_crc(*crc));
  }
  return out;
}

/// The dtypes of weights and their masters, of which one may be the other, cast.
bool is_derivable(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// From the first byte of a chunk to one past the last.
Result<std::uint64_t> span_bytes(const PlacedChunk& placed) {
  const std::uint64_t unit = dtype_bits(placed.where.dtype) / 8;
  if (placed.where.strides.empty()) return checked_mul(placed.chunk.volume(), unit);
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < placed.where.strides.size(); ++d) {
    CKPT_TRY(const std::uint64_t step,
             checked_mul(static_cast<std::uint64_t>(placed.where.strides[d]), placed.chunk.box.size[d] - 1));
    CKPT_TRY(last, checked_add(last, step));
  }
  CKPT_TRY(last, checked_add(last, 1));
  return checked_mul(last, unit);
}

}  // namespace

Result<> put_references(json::Writer& out, std::span<const ReferencedSource> sources) {
  out.begin_array();
  for (const ReferencedSource& source : sources) {
    if (!is_utf8(source.path)) return fail(Errc::internal, source.path + ": a path that is not UTF-8");
    out.line().begin_object().member("path", source.path).key("files").begin_array();
    for (const ReferencedFile& file : source.files) {
      if (!is_utf8(file.path)) return fail(Errc::internal, file.path + ": a path that is not UTF-8");
      put_natural(out.line().begin_object().member("path", file.path).key("bytes"), file.bytes);
      put_natural(out.key("mtime"), static_cast<std::uint64_t>(file.mtime_ns));
      out.member("head", file.head.hex()).end_object();
    }
    out.end_array().end_object();
  }
  out.end_array();
  return {};
}

Result<std::vector<ReferencedSource>> read_references(const json::Value& value) {
  if (value.array() == nullptr) return bad_reference("references", "not an array");
  std::vector<ReferencedSource> out;
  for (const json::Value& item : *value.array()) {
    if (item.object() == nullptr) return bad_reference("references", "holds something other than objects");
    ReferencedSource source;
    CKPT_TRY(source.path, reference_text(item, "path"));
    if (source.path.empty() || source.path.find('\0') != source.path.npos) return bad_reference("path", "not a path");
    CKPT_TRY(const json::Array* files, reference_array(item, "files"));
    for (const json::Value& each : *files) {
      if (each.object() == nullptr) return bad_reference("files", "holds something other than objects");
      CKPT_TRY(ReferencedFile file, read_referenced_file(each));
      source.files.push_back(std::move(file));
    }
    out.push_back(std::move(source));
  }
  return out;
}

void put_chunks(json::Writer& out, const Tensor& tensor, std::span<const PlacedChunk> chunks) {
  const Box whole = Box::whole(tensor.shape);
  out.begin_array();
  for (const auto& [chunk, where] : chunks) {
    out.begin_object().member("file", where.file);
    put_natural(out.key("offset"), where.offset);
    if (chunk.box != whole) {
      out.key("box").begin_array();
      put_all(out, chunk.box.offset);
      put_all(out, chunk.box.size);
      out.end_array();
    }
    if (chunk.flat) {
      out.key("flat");
      put_all(out, std::array{chunk.flat->begin, chunk.flat->end});
    }
    if (!where.strides.empty()) {
      out.key("strides");
      put_all(out, where.strides);
    }
    if (where.dtype != tensor.dtype) out.member("dtype", dtype_name(where.dtype));
    if (where.big_endian) out.member("big_endian", true);
    if (where.crc) {
      out.key("crc");
      put_all(out, std::array{where.crc->begin, where.crc->end, std::uint64_t{where.crc->value}});
    }
    out.end_object();
  }
  out.end_array();
}

Result<std::vector<PlacedChunk>> read_chunks(const json::Value& value, const Tensor& tensor) {
  if (value.array() == nullptr) return bad_reference("chunks", "not an array");
  std::vector<PlacedChunk> out;
  out.reserve(value.array()->size());
  for (const json::Value& item : *value.array()) {
    CKPT_TRY(PlacedChunk chunk, read_chunk(item, tensor));
    out.push_back(std::move(chunk));
  }
  return out;
}

Result<> check_chunk(const PlacedChunk& placed, const Tensor& tensor, std::uint64_t file_bytes) {
  const auto& [chunk, where] = placed;
  const std::uint64_t bits = dtype_bits(where.dtype);
  if (bits % 8 != 0 || dtype_bits(tensor.dtype) % 8 != 0) return bad_reference("chunks", "a packed dtype");
  if (where.dtype != tensor.dtype && !(is_derivable(where.dtype) && is_derivable(tensor.dtype)))
    return bad_reference("dtype", "no value of this dtype is derived from that one");
  if (!fits(chunk.box, tensor.shape)) return bad_reference("box", "outside its tensor");
  const std::uint64_t elements = volume(chunk.box.size);
  if (chunk.flat && chunk.flat->end > elements) return bad_reference("flat", "outside its box");
  if (chunk.volume() == 0) return bad_reference("chunks", "an empty chunk");
  if (!where.strides.empty() && (chunk.flat || where.strides.size() != tensor.shape.size()))
    return bad_reference("strides", "not one for each dimension of a box");
  const auto bytes = span_bytes(placed);
  if (!bytes || where.offset > file_bytes || *bytes > file_bytes - where.offset)
    return bad_reference("offset", "the chunk is outside its file");
  if (where.crc && (where.crc->end > file_bytes || where.crc->begin > where.offset ||
                    where.crc->end - where.offset < *bytes || where.crc->end < where.offset))
    return bad_reference("crc", "a range that does not hold its chunk, or is outside its file");
  return {};
}

}  // namespace ckpt::universal
