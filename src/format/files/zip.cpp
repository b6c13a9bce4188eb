#include "format/files/zip.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "format/checked.hpp"
#include "format/little_endian.hpp"

// Foreign rules: PKWARE APPNOTE.TXT 6.3.10 (4.3.7 local header, 4.3.12 central directory, 4.3.14-16 end records, 4.5.3
// zip64 extra field). torch's subset: caffe2/serialize/inline_container.cc and its miniz.

namespace ckpt::zip {
namespace {

constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kCentralBytes = 46;
constexpr std::uint32_t kSaturated = 0xffffffff;

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;

bool has_signature(std::span<const std::byte> data, std::size_t at, std::uint32_t signature) {
  return at <= data.size() && data.size() - at >= 4 && read_little_endian(data, at, 4) == signature;
}

tl::unexpected<Error> broken(std::string why, std::uint64_t offset) {
  return fail({.code = Errc::corrupt, .message = "zip: " + std::move(why), .offset = offset});
}

// Position of the end record: the last one whose comment reaches exactly to the end.
std::optional<std::size_t> find_end(std::span<const std::byte> tail) {
  if (tail.size() < kEndBytes) return std::nullopt;
  for (std::size_t at = tail.size() - kEndBytes + 1; at-- > 0;) {
    if (!has_signature(tail, at, kEndSignature)) continue;
    if (read_little_endian(tail, at + 20, 2) == tail.size() - at - kEndBytes) return at;
  }
  return std::nullopt;
}

// Reads true sizes and offset from the zip64 extra field, if the record's own are saturated.
Result<> read_zip64_extra(std::span<const std::byte> extra, std::uint64_t& stored, std::uint64_t& plain,
                          std::uint64_t& header, std::uint64_t offset) {
  if (plain != kSaturated && stored != kSaturated && header != kSaturated) return {};
  for (std::size_t at = 0; extra.size() - at >= 4;) {
    const std::uint64_t id = read_little_endian(extra, at, 2);
    const std::uint64_t bytes = read_little_endian(extra, at + 2, 2);
    at += 4;
    if (bytes > extra.size() - at) return broken("an extra field runs past its entry", offset);
    if (id == 1) {
      std::span<const std::byte> values = extra.subspan(at, bytes);
      for (std::uint64_t* value : {&plain, &stored, &header}) {
        if (*value != kSaturated) continue;
        if (values.size() < 8) return broken("a zip64 field is cut short", offset);
        *value = read_little_endian(values, 0, 8);
        values = values.subspan(8);
      }
      return {};
    }
    at += bytes;
  }
  return {};  // exactly 4 GiB - 1
}

bool escapes(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    return true;
  }
  while (!name.empty()) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    if (name.substr(0, slash) == "..") return true;
    name.remove_prefix(std::min(slash + 1, name.size()));
  }
  return false;
}

// One record of the central directory; `at` moves past it.
Result<Entry> read_record(std::span<const std::byte> directory, std::size_t& at, const Tail& tail) {
  const std::uint64_t offset = tail.directory_offset + at;
  if (directory.size() - at < kCentralBytes || !has_signature(directory, at, kCentralSignature)) {
    return broken("the directory is cut short", offset);
  }
  const std::uint64_t flags = read_little_endian(directory, at + 8, 2);
  const std::uint64_t method = read_little_endian(directory, at + 10, 2);
  const std::uint64_t crc = read_little_endian(directory, at + 16, 4);
  std::uint64_t stored = read_little_endian(directory, at + 20, 4);
  std::uint64_t plain = read_little_endian(directory, at + 24, 4);
  const std::size_t name_bytes = read_little_endian(directory, at + 28, 2);
  const std::size_t extra_bytes = read_little_endian(directory, at + 30, 2);
  const std::size_t comment_bytes = read_little_endian(directory, at + 32, 2);
  std::uint64_t header = read_little_endian(directory, at + 42, 4);
  if (name_bytes + extra_bytes + comment_bytes > directory.size() - at - kCentralBytes) {
    return broken("a directory entry runs past the directory", offset);
  }
  std::string name(reinterpret_cast<const char*>(directory.data()) + at + kCentralBytes, name_bytes);
  const auto refuse = [&](std::string_view why) {
    return fail({.code = Errc::refused, .message = "zip: entry '" + name + "': " + std::string(why), .offset = offset});
  };
  if (escapes(name)) return refuse("its name leaves the archive");
  if ((flags & 1u) != 0) return refuse("it is encrypted");
  CKPT_CHECK(
      read_zip64_extra(directory.subspan(at + kCentralBytes + name_bytes, extra_bytes), stored, plain, header, offset));
  if (method == 0 && stored != plain) return broken("entry '" + name + "': two sizes for stored bytes", offset);
  at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  return Entry{.name = std::move(name),
               .header_offset = header,
               .bytes = stored,
               .crc = static_cast<std::uint32_t>(crc),
               .compressed = method != 0};
}

// Every entry, with its local header and name, must end before the next one begins.
Result<> check_apart(const std::vector<Entry>& entries, const Tail& tail) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->header_offset < b->header_offset; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Entry& entry = *order[i];
    const std::uint64_t limit = i + 1 < order.size() ? order[i + 1]->header_offset : tail.directory_offset;
    CKPT_TRY(const std::uint64_t least, checked_add(entry.bytes, kLocalHeaderBytes));
    CKPT_TRY(const std::uint64_t end, checked_add(entry.header_offset, least));
    if (end > limit) return broken("entry '" + entry.name + "' overlaps the next one", entry.header_offset);
  }
  return {};
}

}  // namespace

Result<Tail> find_tail(std::span<const std::byte> tail_bytes, std::uint64_t stream_bytes) {
  assert(tail_bytes.size() <= stream_bytes);
  const std::optional<std::size_t> end = find_end(tail_bytes);
  if (!end) return broken("no end record: the file is cut short, or not a zip file", stream_bytes);
  const std::uint64_t tail_at = stream_bytes - tail_bytes.size();
  const std::uint64_t end_at = tail_at + *end;
  Tail tail{.directory_offset = read_little_endian(tail_bytes, *end + 16, 4),
            .directory_bytes = read_little_endian(tail_bytes, *end + 12, 4),
            .entry_count = read_little_endian(tail_bytes, *end + 10, 2)};
  if (read_little_endian(tail_bytes, *end + 4, 2) != read_little_endian(tail_bytes, *end + 6, 2)) {
    return broken("it is one part of several", end_at);
  }
  std::uint64_t directory_limit = end_at;
  if (*end >= kLocatorBytes && has_signature(tail_bytes, *end - kLocatorBytes, kLocatorSignature)) {
    const std::uint64_t record_at = read_little_endian(tail_bytes, *end - kLocatorBytes + 8, 8);
    if (record_at < tail_at || record_at > end_at - kLocatorBytes || end_at - kLocatorBytes - record_at < kEnd64Bytes ||
        !has_signature(tail_bytes, record_at - tail_at, kEnd64Signature)) {
      return broken("the zip64 end record is not where its locator says", end_at - kLocatorBytes);
    }
    const std::size_t at = record_at - tail_at;
    tail = {.directory_offset = read_little_endian(tail_bytes, at + 48, 8),
            .directory_bytes = read_little_endian(tail_bytes, at + 40, 8),
            .entry_count = read_little_endian(tail_bytes, at + 32, 8)};
    directory_limit = record_at;
  }
  if (tail.directory_offset > directory_limit || tail.directory_bytes > directory_limit - tail.directory_offset) {
    return broken("the directory runs past the end record", end_at);
  }
  if (tail.entry_count > tail.directory_bytes / kCentralBytes) {
    return broken("the directory is too short for its " + std::to_string(tail.entry_count) + " entries", end_at);
  }
  return tail;
}

Result<std::vector<Entry>> parse_directory(std::span<const std::byte> directory, const Tail& tail,
                                           std::uint64_t stream_bytes) {
  if (directory.size() != tail.directory_bytes || tail.directory_offset > stream_bytes) {
    return broken("the directory is cut short", tail.directory_offset);
  }
  if (tail.entry_count > directory.size() / kCentralBytes) {
    return broken("the directory is too short for its entries", tail.directory_offset);
  }
  std::vector<Entry> entries;
  entries.reserve(tail.entry_count);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < tail.entry_count; ++i) {
    CKPT_TRY(Entry entry, read_record(directory, at, tail));
    entries.push_back(std::move(entry));
  }
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (names.insert(entry.name).second) continue;
    return fail({.code = Errc::refused,
                 .message = "zip: two entries are named '" + entry.name + "'",
                 .offset = entry.header_offset});
  }
  CKPT_CHECK(check_apart(entries, tail));
  return entries;
}

Result<std::uint64_t> data_offset(std::span<const std::byte> local_header, const Entry& entry, const Tail& tail) {
  if (local_header.size() < kLocalHeaderBytes || !has_signature(local_header, 0, kLocalSignature)) {
    return broken("entry '" + entry.name + "' has no local header", entry.header_offset);
  }
  const std::uint64_t skipped =
      kLocalHeaderBytes + read_little_endian(local_header, 26, 2) + read_little_endian(local_header, 28, 2);
  CKPT_TRY(const std::uint64_t begin, checked_add(entry.header_offset, skipped));
  CKPT_TRY(const std::uint64_t end, checked_add(begin, entry.bytes));
  if (end > tail.directory_offset) {
    return broken("entry '" + entry.name + "' runs into the directory", entry.header_offset);
  }
  return begin;
}

Result<> check_stored(const Entry& entry) {
  if (!entry.compressed) return {};
  return fail({.code = Errc::refused,
               .message = "zip: entry '" + entry.name + "': it is compressed, which no framework writes",
               .offset = entry.header_offset,
               .hint = "if you repacked the archive, repack it without compression ('zip -0')"});
}

bool without_crc(std::span<const Entry> entries) {
  return std::all_of(entries.begin(), entries.end(),
                     [](const Entry& entry) { return entry.bytes == 0 || entry.crc == 0; });
}

}  // namespace ckpt::zip
