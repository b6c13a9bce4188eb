#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/result.hpp"

namespace ckpt::zip {

struct Entry {
  std::string name;
  std::uint64_t header_offset = 0;  ///< of the local header, from the start of the zip stream
  std::uint64_t bytes = 0;          ///< as in the archive
  std::uint32_t crc = 0;
  bool compressed = false;  ///< then nothing here can read it: check_stored
};

/// The location of the central directory, found from the last bytes of the stream.
struct Tail {
  std::uint64_t directory_offset = 0;  ///< from the start of the stream
  std::uint64_t directory_bytes = 0;
  std::uint64_t entry_count = 0;
};
/// Bytes from the end that find_tail may need: the end record, its comment, the zip64 locator and record.
constexpr std::uint64_t kTailBytes = 65536 + 22 + 20 + 56;

/// tail_bytes  the last bytes of the stream (all of it if it is shorter than kTailBytes)
/// stream_bytes  size of the whole stream
/// errors      corrupt: no end record, or one that contradicts the size
Result<Tail> find_tail(std::span<const std::byte> tail_bytes, std::uint64_t stream_bytes);

/// Parses the central directory. refused: names that escape ("..", absolute), encrypted entries, duplicate names;
/// corrupt: cut short, sizes past the stream, overlapping entries.
Result<std::vector<Entry>> parse_directory(std::span<const std::byte> directory, const Tail& tail,
                                           std::uint64_t stream_bytes);

/// refused: the entry is compressed. Frameworks store tensors uncompressed; compressed ones may be decompression bombs.
Result<> check_stored(const Entry& entry);

/// Bytes that data_offset needs from header_offset on.
constexpr std::size_t kLocalHeaderBytes = 30;
/// The begin of the entry's data, from the start of the stream, by the entry's local header (its name and extra lengths
/// may differ from the directory's). corrupt: no local header, or the data extends past the directory.
Result<std::uint64_t> data_offset(std::span<const std::byte> local_header, const Entry& entry, const Tail& tail);

/// True when every entry with bytes has CRC 0: the archive was written without checksums.
bool without_crc(std::span<const Entry> entries);

}  // namespace ckpt::zip
