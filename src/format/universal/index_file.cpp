#include "format/universal/index_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "format/checked.hpp"
#include "format/little_endian.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

constexpr std::string_view kIndexMagic = "CKPTINDX";
constexpr std::uint64_t kIndexMajor = 1;
constexpr std::uint64_t kIndexMinor = 0;
constexpr std::size_t kIndexHeaderBytes = 64;
constexpr std::size_t kIndexRecordBytes = 64;
constexpr std::size_t kWordBytes = 8;
constexpr std::uint64_t kNoBox = ~std::uint64_t{0};
constexpr std::uint64_t kFlat = 1;

tl::unexpected<Error> bad_index(Check check, std::uint64_t offset, std::string_view reason) {
  return violates(check,
                  Error{.message = fmt::format("index file: parse at byte {}: {}", offset, reason), .offset = offset});
}

/// The range of the tensor's row-major order that a chunk spans: records are sorted and searched by it.
Extent span_of(const Chunk& chunk, const Shape& shape) {
  const Box whole = Box::whole(shape);
  if (chunk.box == whole) return chunk.flat.value_or(Extent{0, volume(shape)});
  Shape last = chunk.box.offset;
  for (std::size_t d = 0; d < last.size(); ++d) last[d] += chunk.box.size[d] - 1;
  return {linear_index(whole, chunk.box.offset), linear_index(whole, last) + 1};
}

/// A chunk that is not empty unless its tensor is, is inside its tensor, and has one way to say that it is all of its
/// box.
const char* fault_of(const Chunk& chunk, const Shape& shape) {
  if (!fits(chunk.box, shape)) return "a box outside of its tensor";
  const std::uint64_t elements = volume(chunk.box.size);
  if (chunk.flat && (chunk.flat->begin >= chunk.flat->end || chunk.flat->end > elements))
    return "a flat range outside of its box";
  if (chunk.flat && chunk.flat->size() == elements) return "a flat range that is its whole box";
  if (elements == 0 && (volume(shape) != 0 || chunk.box != Box::whole(shape))) return "an empty chunk";
  return nullptr;
}

/// The chunks of one row at one writer have the volumes 0, 1, 2, ... in some order. Sorts them.
bool volumes_are_counted(std::vector<std::uint32_t>& volumes) {
  std::sort(volumes.begin(), volumes.end());
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    if (volumes[i] != i) return false;
  }
  return true;
}

struct IndexReader {
  std::span<const std::byte> data;
  std::span<const Shape> shapes;
  std::uint64_t record_count = 0;
  std::uint64_t word_count = 0;
  std::uint64_t next_word = 0;

  std::uint64_t word(std::uint64_t index) const {
    return read_little_endian(data, kIndexHeaderBytes + record_count * kIndexRecordBytes + index * kWordBytes,
                              kWordBytes);
  }

  /// The chunk of the record at `at`, checked by itself.
  Result<IndexedChunk> record(std::size_t at) {
    IndexedChunk out{.row = static_cast<std::uint32_t>(read_little_endian(data, at, 4)),
                     .volume = static_cast<std::uint32_t>(read_little_endian(data, at + 4, 4)),
                     .offset = read_little_endian(data, at + 32, 8)};
    if (out.row >= shapes.size())
      return bad_index(Check::index_records, at, fmt::format("row {} does not exist", out.row));
    const Shape& shape = shapes[out.row];
    const Extent held{read_little_endian(data, at + 8, 8), read_little_endian(data, at + 16, 8)};
    const std::uint64_t flags = read_little_endian(data, at + 56, 8);
    const std::uint64_t box = read_little_endian(data, at + 48, 8);
    if (flags > kFlat || (box == kNoBox && flags != 0))
      return bad_index(Check::index_records, at + 56, "unknown flags");
    if (box == kNoBox) {
      out.chunk.box = Box::whole(shape);
      if (held.begin != 0 || held.end != volume(shape)) out.chunk.flat = held;
    } else {
      CKPT_TRY(out.chunk, boxed(at, box, shape, flags));
    }
    if (const char* fault = fault_of(out.chunk, shape)) return bad_index(Check::index_chunks, at, fault);
    if (box != kNoBox && out.chunk.box == Box::whole(shape))
      return bad_index(Check::index_chunks, at + 48, "a box that covers its whole tensor");
    if (span_of(out.chunk, shape) != held)
      return bad_index(Check::index_records, at + 8, "the range does not match the chunk");
    if (read_little_endian(data, at + 40, 8) != out.chunk.volume())
      return bad_index(Check::index_records, at + 40, "the element count does not match the chunk");
    return out;
  }

 private:
  Result<Chunk> boxed(std::size_t at, std::uint64_t first, const Shape& shape, std::uint64_t flags) {
    const std::uint64_t words = 2 * shape.size() + (flags == kFlat ? 2 : 0);
    if (first != next_word || words > word_count - next_word)
      return bad_index(Check::index_records, at + 48, "a box that does not follow the previous one");
    Chunk chunk{.box = {Shape(shape.size()), Shape(shape.size())}};
    for (std::uint64_t& offset : chunk.box.offset) offset = word(next_word++);
    for (std::uint64_t& size : chunk.box.size) size = word(next_word++);
    if (flags == kFlat) {
      chunk.flat = Extent{word(next_word), word(next_word + 1)};
      next_word += 2;
    }
    return chunk;
  }
};

}  // namespace

Result<std::string> build_index_file(IndexFile index, std::span<const Shape> shapes) {
  const auto broken = [](const IndexedChunk& chunk, std::string_view reason) -> Result<std::string> {
    return fail(Errc::internal, fmt::format("row {}: build index: {}", chunk.row, reason));
  };
  const auto span = [&](const IndexedChunk& chunk) { return span_of(chunk.chunk, shapes[chunk.row]); };
  for (IndexedChunk& chunk : index.chunks) {
    if (chunk.row >= shapes.size()) return broken(chunk, "no such row");
    if (chunk.chunk.flat && chunk.chunk.flat->begin == 0 && chunk.chunk.flat->end == volume(chunk.chunk.box.size))
      chunk.chunk.flat.reset();
    if (const char* fault = fault_of(chunk.chunk, shapes[chunk.row])) return broken(chunk, fault);
  }
  std::sort(index.chunks.begin(), index.chunks.end(), [&](const IndexedChunk& a, const IndexedChunk& b) {
    if (a.row != b.row) return a.row < b.row;
    return std::pair(span(a).begin, a.volume) < std::pair(span(b).begin, b.volume);
  });
  std::string words;
  std::string records;
  std::uint64_t reach = 0;
  for (std::size_t i = 0; i < index.chunks.size(); ++i) {
    const IndexedChunk& chunk = index.chunks[i];
    const Extent held = span(chunk);
    const bool first = i == 0 || index.chunks[i - 1].row != chunk.row;
    reach = first ? held.end : std::max(reach, held.end);
    const bool boxed = chunk.chunk.box != Box::whole(shapes[chunk.row]);
    append_little_endian(records, chunk.row, 4);
    append_little_endian(records, chunk.volume, 4);
    append_little_endian(records, held.begin, 8);
    append_little_endian(records, held.end, 8);
    append_little_endian(records, reach, 8);
    append_little_endian(records, chunk.offset, 8);
    append_little_endian(records, chunk.chunk.volume(), 8);
    append_little_endian(records, boxed ? words.size() / kWordBytes : kNoBox, 8);
    append_little_endian(records, boxed && chunk.chunk.flat ? kFlat : 0, 8);
    if (!boxed) continue;
    for (const std::uint64_t offset : chunk.chunk.box.offset) append_little_endian(words, offset, 8);
    for (const std::uint64_t size : chunk.chunk.box.size) append_little_endian(words, size, 8);
    if (chunk.chunk.flat) {
      append_little_endian(words, chunk.chunk.flat->begin, 8);
      append_little_endian(words, chunk.chunk.flat->end, 8);
    }
  }
  std::string out(kIndexMagic);
  append_little_endian(out, kIndexMajor, 2);
  append_little_endian(out, kIndexMinor, 2);
  append_little_endian(out, index.writer, 4);
  out.append(reinterpret_cast<const char*>(index.id.bytes.data()), index.id.bytes.size());
  append_little_endian(out, index.chunks.size(), 8);
  append_little_endian(out, words.size() / kWordBytes, 8);
  append_little_endian(out, 0, 8);
  append_little_endian(out, 0, 8);
  return out + records + words;
}

Result<IndexFile> parse_index_file(std::span<const std::byte> data, std::span<const Shape> shapes) {
  if (data.size() < kIndexHeaderBytes) return bad_index(Check::index_form, data.size(), "shorter than its header");
  if (std::memcmp(data.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    return bad_index(Check::index_form, 0, "not an index file");
  const std::uint64_t major = read_little_endian(data, 8, 2);
  const std::uint64_t minor = read_little_endian(data, 10, 2);
  if (major != kIndexMajor)
    return bad_index(Check::index_version, 8, fmt::format("unknown version {}.{}", major, minor));
  IndexFile out{.writer = static_cast<std::uint32_t>(read_little_endian(data, 12, 4))};
  std::memcpy(out.id.bytes.data(), data.data() + 16, out.id.bytes.size());
  if (minor <= kIndexMinor && (read_little_endian(data, 48, 8) != 0 || read_little_endian(data, 56, 8) != 0))
    return bad_index(Check::index_form, 48, "reserved bytes of the header are not zero");
  IndexReader reader{.data = data,
                     .shapes = shapes,
                     .record_count = read_little_endian(data, 32, 8),
                     .word_count = read_little_endian(data, 40, 8)};
  const std::uint64_t rest = data.size() - kIndexHeaderBytes;
  if (reader.record_count > rest / kIndexRecordBytes)
    return bad_index(Check::index_form, 32, fmt::format("{} records do not fit in the file", reader.record_count));
  const std::uint64_t word_bytes = rest - reader.record_count * kIndexRecordBytes;
  if (word_bytes % kWordBytes != 0 || reader.word_count != word_bytes / kWordBytes)
    return bad_index(Check::index_form, 40,
                     fmt::format("{} words do not end at the end of the file", reader.word_count));

  out.chunks.reserve(reader.record_count);
  std::vector<std::uint32_t> volumes;
  std::uint64_t reach = 0;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < reader.record_count; ++i) {
    const std::size_t at = kIndexHeaderBytes + i * kIndexRecordBytes;
    CKPT_TRY(IndexedChunk chunk, reader.record(at));
    const Extent held{read_little_endian(data, at + 8, 8), read_little_endian(data, at + 16, 8)};
    const bool first = out.chunks.empty() || out.chunks.back().row != chunk.row;
    if (!out.chunks.empty()) {
      const IndexedChunk& before = out.chunks.back();
      if (std::tuple(before.row, begin, before.volume) >= std::tuple(chunk.row, held.begin, chunk.volume))
        return bad_index(Check::index_records, at, "records are not sorted");
    }
    if (first) {
      if (!volumes_are_counted(volumes))
        return bad_index(Check::index_records, at, "volumes of the previous row are not 0, 1, ...");
      volumes.clear();
    }
    reach = first ? held.end : std::max(reach, held.end);
    if (read_little_endian(data, at + 24, 8) != reach) return bad_index(Check::index_records, at + 24, "a wrong reach");
    begin = held.begin;
    volumes.push_back(chunk.volume);
    out.chunks.push_back(std::move(chunk));
  }
  if (!volumes_are_counted(volumes))
    return bad_index(Check::index_records, data.size(), "volumes of the last row are not 0, 1, ...");
  if (reader.next_word != reader.word_count)
    return bad_index(Check::index_records, 40, "words that no record refers to");
  return out;
}

}  // namespace ckpt::universal
