#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/result.hpp"

/// The header of a safetensors file: u64 little-endian N, N bytes of JSON that begin with '{' and may end with
/// blanks, then the data. Source: safetensors README "Format" and safetensors/src/tensor.rs. Beyond the README, the
/// reference accepts leading blanks, a null `__metadata__` and unknown fields of a tensor; so does this. Duplicate
/// keys are not.
namespace ckpt::safetensors {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  ///< of the JSON: MAX_HEADER_SIZE of the reference
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 64;  ///< dimensions; no framework goes beyond, and a hostile shape ends here

/// The key of a file's metadata, so no tensor's.
constexpr std::string_view kMetadataKey = "__metadata__";
/// Why a tensor of that name has no place in this format, nor in those that keep tensors in its files.
Error reserved_name();

/// `__metadata__`: text to text, in file order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// A tensor of one file.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape{};            ///< logical: packed dtypes count elements
  std::uint64_t begin = 0;  ///< bytes from the start of the data
  std::uint64_t end = 0;
};

struct Header {
  Metadata metadata{};
  std::vector<Entry> entries{};  ///< as the header lists them
  std::uint64_t data_begin = 0;  ///< bytes from the start of the file
};

/// The length of the header, from the first bytes of a file.
///
/// head        first bytes of the file, at least 8 if the file is that long
/// file_bytes  size of the whole file
/// returns     data_begin: 8 + length of the JSON, bytes
/// errors      corrupt: the file is shorter than its header, or the header is over kMaxHeaderBytes
Result<std::uint64_t> header_bytes(std::span<const std::byte> head, std::uint64_t file_bytes);

/// Parses and checks a header.
///
/// head    first bytes of the file, at least header_bytes(head); more is ignored
/// errors  unsupported: over kMaxRank dimensions, or sizes behind a zero whose product overflows; corrupt, with
///         `offset` in bytes from the start of the file and `tensor` where known: not strict JSON; fields missing or of
///         a wrong type; an unknown dtype; sizes that overflow, are not whole bytes or differ from the data range;
///         ranges that do not tile the data exactly (a hole, an overlap, bytes after the last tensor, an end past the
///         end of the file)
Result<Header> parse_header(std::span<const std::byte> head, std::uint64_t file_bytes);

/// A tensor to be written. The views outlive the call of build_header only.
struct NewEntry {
  std::string_view name;  ///< valid UTF-8, unique
  Dtype dtype = Dtype::f32;
  std::span<const std::uint64_t> shape{};
};

struct BuiltHeader {
  std::string bytes;                     ///< length field, JSON, blanks: all that precedes the data
  std::vector<std::uint64_t> offsets{};  ///< of each entry's data, bytes from the start of the file
  std::uint64_t file_bytes = 0;          ///< header and data
};

/// Builds the header of a file that holds `entries` in the given order without holes.
///
/// alignment  the data begins at a multiple of this many bytes (the header ends in blanks); at least 8
/// errors     corrupt: a size overflows or is not whole bytes; unsupported: the JSON would exceed kMaxHeaderBytes, or a
///            tensor is named "__metadata__"
Result<BuiltHeader> build_header(std::span<const NewEntry> entries, const Metadata& metadata,
                                 std::uint64_t alignment = kLengthBytes);

}  // namespace ckpt::safetensors
