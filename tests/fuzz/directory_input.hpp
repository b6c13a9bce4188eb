#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "convert/open_source.hpp"
#include "format/checked.hpp"
#include "support/memory_io.hpp"
#include "support/zip_writer.hpp"

/// Whole directories as inputs of a fuzzer: what several files say of each other is where readers go wrong. An input is
/// a run of files, each: u8 kind, u8 length of the name, name, u32 length (little-endian), bytes. Lengths that lead
/// past the end mean the rest, so that a mutation seldom spoils all.
///   kind, lowest bit 0   the bytes as they stand
///   kind, lowest bit 1   a torch.save file with right checksums, which no mutation would find: u8 count, then of each
///                        storage u16 key, u32 size (of zeros, at most 64 KiB); what follows is data.pkl
/// make_seeds.py makes them from genuine checkpoints.
namespace ckpt::fuzz {

constexpr const char* kRoot = "/c";
constexpr std::size_t kMostFiles = 64;

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// Takes numbers and bytes from the front of an input; zeros where it has ended.
class Taker {
 public:
  explicit Taker(std::string_view data) : data_(data) {}
  bool done() const { return data_.empty(); }
  std::string_view bytes(std::uint64_t count) {
    const std::string_view out = data_.substr(0, count);
    data_.remove_prefix(out.size());
    return out;
  }
  std::uint64_t number(unsigned width) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    for (const char c : bytes(width)) {
      value |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return value;
  }

 private:
  std::string_view data_;
};

inline std::string torch_bytes(std::string_view input) {
  Taker in(input);
  const std::uint64_t count = in.number(1);
  struct Storage {
    std::uint64_t key, bytes;
  };
  std::vector<Storage> list;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t key = in.number(2);
    list.push_back({key, std::min<std::uint64_t>(in.number(4), 64 << 10)});
  }
  test::ZipWriter out;
  out.add("archive/data.pkl", in.bytes(input.size()));
  for (const Storage& storage : list) {
    out.add("archive/data/" + std::to_string(storage.key), std::string(storage.bytes, '\0'));
  }
  return out.add("archive/version", "3\n").finish();
}

/// Puts the files of an input below kRoot.
inline void put_directory(MemoryDisk& disk, std::string_view input) {
  Taker in(input);
  for (std::size_t i = 0; i < kMostFiles && !in.done(); ++i) {
    const bool is_torch = (in.number(1) & 1) != 0;
    std::string name(in.bytes(in.number(1)));
    const std::string_view bytes = in.bytes(in.number(4));
    // What a directory can hold: no empty parts, no way up.
    const bool odd = name.empty() || name.front() == '/' || name.back() == '/' || name.find('\0') != name.npos ||
                     name.find("..") != name.npos || name.find("//") != name.npos;
    if (odd) name = "file";
    disk.put(std::string(kRoot) + "/" + name, is_torch ? torch_bytes(bytes) : std::string(bytes));
  }
}

/// What any map promises: names of its own, chunks inside their tensors and their files; and coverage has an answer.
inline void require_sound(const Map& map) {
  std::unordered_set<std::string_view> names;
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    require(!tensor.name.empty() && names.insert(tensor.name).second);
    const auto elements = checked_volume(tensor.shape);
    require(elements.has_value());
    const auto visited = map.index->chunks(i, {0, *elements}, [&](const PlacedChunk& placed) -> Result<> {
      require(fits(placed.chunk.box, tensor.shape));
      require(placed.where.file < map.files.size());
      const MapFile& file = map.files[placed.where.file];
      require(placed.where.offset <= file.bytes);
      if (placed.where.crc)
        require(placed.where.crc->begin <= placed.where.crc->end && placed.where.crc->end <= file.bytes);
      if (placed.where.strides.empty()) {
        const auto bytes = tensor_bytes(placed.where.dtype, {placed.chunk.volume()});
        require(bytes.has_value() && *bytes <= file.bytes - placed.where.offset);
      }
      return {};
    });
    if (visited) all.push_back(static_cast<std::uint32_t>(i));
  }
  static_cast<void>(check_coverage(map, all));
  for (const Alias& alias : map.aliases) require(names.contains(alias.target));
}

/// Opens the directory by detection and by this format.
inline void open_directory(const Format& format, std::string_view input) {
  MemoryDisk disk;
  put_directory(disk, input);
  const auto io = disk.io();
  if (!io->stat(kRoot)) return;
  const ReadOptions options{.metadata_limit = 64 << 20};
  if (const auto map = format.reader->open(*io, kRoot, options)) require_sound(*map);
  static_cast<void>(open_source(*io, kRoot, "", options));
}

}  // namespace ckpt::fuzz
