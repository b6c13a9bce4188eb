#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/mesh_layout.hpp"
#include "format/universal/sums.hpp"

/// The files of one writer of a universal checkpoint, computed from the rows of the manifest alone: FORMAT.md sections
/// 4 and 6.
namespace ckpt::universal {

constexpr std::string_view kSeriesKey = "ckpt.v1";  ///< in `__metadata__` of every shard

/// The description in a shard: the text of `__metadata__["ckpt.v1"]`.
struct Series {
  FileKey key{};
  Hash128 id{};
  std::string_view version = kVersion;
  bool dcp_readable = true;  ///< false where an entry is a flat piece: PyTorch's reader would take it for the tensor
};
std::string series_text(const Series& series);

/// The chunks of one row in an irregular layout that this writer writes; chunk k goes to volume k.
struct GivenChunks {
  std::uint32_t row = 0;
  std::vector<Chunk> chunks{};
};

/// The writer whose files are queried. The views' data must outlive the call.
struct WriterRequest {
  std::span<const TensorRow> rows{};         ///< Manifest::tensors: sorted by name, layout and begin as in the manifest
  std::span<const Layout> layouts{};         ///< Manifest::layouts, each checked
  Hash128 id{};                              ///< of the checkpoint
  std::uint32_t writer = 0;                  ///< whose files
  std::span<const GivenChunks> irregular{};  ///< ascending by row; rows of irregular layouts only
};

/// One entry of a shard.
struct WriterEntry {
  std::uint32_t row = 0;  ///< index into WriterRequest::rows
  Chunk chunk{};
  std::uint64_t offset = 0;  ///< bytes from the start of the file
  std::uint64_t bytes = 0;
};

/// One shard, complete but for the bytes of its tensors.
struct WriterFile {
  FileKey key{};
  std::uint64_t bytes = 0;             ///< header and data
  std::uint64_t data_begin = 0;        ///< bytes from the start of the file: the size of `header`
  std::string header{};                ///< length field, JSON, blanks
  std::vector<WriterEntry> entries{};  ///< in file order, which is that of the header
};

/// All shards of a writer, by key; none for a writer that writes nothing. Equal requests give equal bytes.
/// errors   corrupt, with the tensor: sizes that overflow, a layout that does not fit; unsupported: a header over the
///          limit of safetensors; internal: rows out of order, chunks given for a row of another layout or outside of
///          its tensor
Result<std::vector<WriterFile>> lay_out_writer(const WriterRequest& request);

/// The location of a writer's chunks, without headers: header lengths are in sums.bin.
struct WriterPlaces {
  struct File {
    FileKey key{};
    std::uint64_t data_bytes = 0;
    std::uint32_t entry_count = 0;
  };
  /// A chunk of a row; offsets count from the beginning of the file's data.
  struct Entry {
    std::uint32_t row = 0;
    std::uint32_t volume = 0;  ///< the chunk's number in written_chunks, or the row's in layout `whole`
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<File> files{};     ///< by key
  std::vector<Entry> entries{};  ///< by (row, volume)
};
/// errors   as lay_out_writer
Result<WriterPlaces> place_writer(const WriterRequest& request);

}  // namespace ckpt::universal
