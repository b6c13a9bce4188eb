#include "format/torch/archive_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "format/hash.hpp"
#include "format/little_endian.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::torch {
namespace {

constexpr std::uint64_t kStorageAlignment = 64;  // torch/serialization.py: config.save.storage_alignment
constexpr std::uint64_t kLimit = 0xffffffff;
constexpr std::uint64_t kLocalHeaderBytes = 30;
constexpr std::uint32_t kLocalMagic = 0x04034b50;
constexpr std::uint32_t kDescriptorMagic = 0x08074b50;
constexpr std::uint32_t kDirectoryMagic = 0x02014b50;
constexpr std::uint16_t kUtf8Names = 0x800;
constexpr std::uint16_t kHasDescriptor = 0x8;
constexpr std::string_view kFormatVersion = "1";
constexpr std::string_view kVersionText = "3\n";

/// miniz's extra field for values above 32 bits: sizes twice, then the offset, in the local header too.
std::string zip64_extra(std::uint64_t bytes, std::uint64_t header_offset) {
  std::string fields;
  if (bytes >= kLimit) append_little_endian(fields, bytes, 8), append_little_endian(fields, bytes, 8);
  if (header_offset >= kLimit) append_little_endian(fields, header_offset, 8);
  if (fields.empty()) return {};
  std::string out;
  append_little_endian(out, 1, 2);
  append_little_endian(out, fields.size(), 2);
  return out + fields;
}

class ArchiveBuilder {
 public:
  explicit ArchiveBuilder(std::string root) : root_(std::move(root)) {}

  void add_literal(std::string_view name, std::string_view bytes) {
    begin_entry(name, bytes.size());
    open_ += bytes;
    end_entry(bytes.size(), crc32(0, std::as_bytes(std::span(bytes))));
  }

  void add_storage(std::string_view name, std::uint64_t bytes) {
    begin_entry(name, bytes);
    const std::uint64_t begin = position();
    out_.storage_offsets.push_back(begin);
    if (bytes > 0) {
      close_piece();
      piece_begin_ = begin + bytes;
    }
    end_entry(bytes, bytes == 0 ? std::optional<std::uint32_t>(0) : std::nullopt);
  }

  ArchiveLayout finish() {
    const std::uint64_t begin = position();
    for (const auto& [offset, covers] : late_in_directory_) out_.late.push_back({begin + offset, covers});
    open_ += directory_;
    const std::uint64_t end = position();
    put(0x06064b50, 4);  // zip64 end of directory; miniz: MZ_ZIP64_END_OF_CENTRAL_DIR_HEADER_SIG
    put(44, 8);
    put(0x031e, 2);
    put(0x2d, 2);
    put(0, 8);
    put(entries_, 8);
    put(entries_, 8);
    put(end - begin, 8);
    put(begin, 8);
    put(0x07064b50, 4);  // its locator
    put(0, 4);
    put(end, 8);
    put(1, 4);
    put(0x06054b50, 4);
    put(0, 4);
    put(std::min<std::uint64_t>(entries_, 0xffff), 2);
    put(std::min<std::uint64_t>(entries_, 0xffff), 2);
    put(std::min(end - begin, kLimit), 4);
    put(std::min(begin, kLimit), 4);
    put(0, 2);
    out_.bytes = position();
    close_piece();
    return std::move(out_);
  }

 private:
  std::uint64_t position() const { return piece_begin_ + open_.size(); }
  void put(std::uint64_t value, unsigned bytes) { append_little_endian(open_, value, bytes); }

  void close_piece() {
    if (!open_.empty()) out_.pieces.push_back({piece_begin_, std::exchange(open_, {})});
  }

  void begin_entry(std::string_view name, std::uint64_t bytes) {
    name_ = root_ + "/" + std::string(name);
    header_offset_ = position();
    zip64_ = zip64_extra(bytes, header_offset_);
    const std::uint64_t before = header_offset_ + kLocalHeaderBytes + name_.size() + zip64_.size() + 4;
    const std::uint64_t padding = (kStorageAlignment - before % kStorageAlignment) % kStorageAlignment;
    put(kLocalMagic, 4);
    put(0, 2);
    put(flags(bytes), 2);
    put(0, 6);  // method, time, date
    put(0, 4);  // CRC and sizes are in the descriptor
    put(0, 8);
    put(name_.size(), 2);
    put(zip64_.size() + 4 + padding, 2);
    open_ += name_;
    open_ += zip64_;
    open_ += "FB";
    put(padding, 2);
    open_.append(static_cast<std::size_t>(padding), 'Z');
  }

  static std::uint16_t flags(std::uint64_t bytes) {
    return bytes == 0 ? kUtf8Names : static_cast<std::uint16_t>(kUtf8Names | kHasDescriptor);
  }

  /// crc  nothing if it is a late field
  void end_entry(std::uint64_t bytes, std::optional<std::uint32_t> crc) {
    const Extent covers{position() - bytes, position()};
    if (bytes > 0) {
      put(kDescriptorMagic, 4);
      if (!crc) out_.late.push_back({position(), covers});
      put(crc.value_or(0), 4);
      const unsigned width = zip64_.empty() ? 4 : 8;
      put(bytes, width);
      put(bytes, width);
    }
    ++entries_;
    const auto add = [&](std::uint64_t value, unsigned width) { append_little_endian(directory_, value, width); };
    add(kDirectoryMagic, 4);
    add(0, 4);
    add(flags(bytes), 2);
    add(0, 6);
    if (!crc) late_in_directory_.emplace_back(directory_.size(), covers);
    add(crc.value_or(0), 4);
    add(std::min(bytes, kLimit), 4);
    add(std::min(bytes, kLimit), 4);
    add(name_.size(), 2);
    add(zip64_.size(), 2);
    add(0, 8);
    add(0, 2);
    add(std::min(header_offset_, kLimit), 4);
    directory_ += name_;
    directory_ += zip64_;
  }

  std::string root_;
  ArchiveLayout out_;
  std::string open_;  // the piece that is being written, from piece_begin_ on
  std::uint64_t piece_begin_ = 0;
  std::string name_;  // of the entry that is being written
  std::string zip64_;
  std::uint64_t header_offset_ = 0;
  std::string directory_;
  std::vector<std::pair<std::uint64_t, Extent>> late_in_directory_;
  std::uint64_t entries_ = 0;
};

constexpr std::size_t kHalfDigits = 20;  // of the two hashes that torch's own is

std::string serialization_id(std::string_view id) {
  const auto bytes = Hash128::from_hex(id).value_or(hash128(id)).bytes;
  std::uint64_t halves[2] = {0, 0};
  for (std::size_t i = 0; i < bytes.size(); ++i) halves[i / 8] = halves[i / 8] << 8 | bytes[i];
  return fmt::format("{:020}{:020}", halves[0], halves[1]);
}

}  // namespace

std::string id_in_archive(std::string_view serialization_id) {
  if (serialization_id.size() != 2 * kHalfDigits) return {};
  const auto first = parse_number<std::uint64_t>(serialization_id.substr(0, kHalfDigits));
  const auto second = parse_number<std::uint64_t>(serialization_id.substr(kHalfDigits));
  if (!first || !second) return {};
  Hash128 id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<std::uint8_t>((i < 8 ? *first : *second) >> (8 * (7 - i % 8)));
  return id.hex();
}

ArchiveLayout lay_out_archive(const ArchiveRequest& request) {
  ArchiveBuilder builder(request.root);
  builder.add_literal("data.pkl", request.pickle);
  builder.add_literal(".format_version", kFormatVersion);
  builder.add_literal(".storage_alignment", std::to_string(kStorageAlignment));
  builder.add_literal("byteorder", "little");
  for (std::size_t k = 0; k < request.storage_bytes.size(); ++k)
    builder.add_storage(fmt::format("data/{}", k), request.storage_bytes[k]);
  builder.add_literal("version", kVersionText);
  builder.add_literal(".data/serialization_id", serialization_id(request.id));
  return builder.finish();
}

std::string archive_root(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const std::string_view stem = name.substr(0, name.rfind('.'));
  const bool is_ascii = std::ranges::all_of(stem, [](char c) { return (static_cast<unsigned char>(c) & 0x80u) == 0; });
  return std::string(stem.empty() || !is_ascii ? "archive" : stem);
}

}  // namespace ckpt::torch
