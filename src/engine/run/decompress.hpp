#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "format/files/zstd_stream.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Memory of a worker for decoder streams, in addition to its buffers, if the source is compressed.
constexpr std::uint64_t kDecodeBytes = std::uint64_t{36} << 20;

/// A decoder of one compressed range of a file, from its beginning. Reads the file in pieces of kPieceBytes; its memory
/// is bounded by kMostBytes, whatever the range decodes to.
class Decompressor {
 public:
  static constexpr std::size_t kPieceBytes = 128 << 10;
  static constexpr std::uint64_t kMostBytes = kZstdStreamBytes + kPieceBytes;

  /// compressed  its `bytes` bound what is decoded
  /// path        for messages
  static Result<Decompressor> make(const Compressed& compressed, std::string path);

  /// The decoded bytes from position() on, which advances: as many as `out` holds, or fewer at their end. `file` is the
  /// file, not direct.
  /// errors  corrupt, checksum, with file and offset: not such a stream, cut short, bytes after it, or decoded bytes
  ///         beyond the bound; unsupported, memory: as ZstdStream; errors of Io
  Result<std::size_t> read(Io& io, FileHandle file, std::span<std::byte> out);
  /// Goes back to the begin.
  void restart();

  const Compressed& compressed() const { return compressed_; }
  const std::string& path() const { return path_; }
  std::uint64_t position() const { return position_; }
  /// Bytes of the file read so far, again after each restart.
  std::uint64_t read_bytes() const { return read_bytes_; }
  std::uint64_t memory_bytes() const { return stream_.memory_bytes() + input_.size(); }

 private:
  Decompressor(const Compressed& compressed, std::string path, ZstdStream stream)
      : compressed_(compressed), path_(std::move(path)), stream_(std::move(stream)), input_(kPieceBytes) {}
  Result<> fill(Io& io, FileHandle file);
  Error at(Error error) const;

  Compressed compressed_;
  std::string path_;
  ZstdStream stream_;
  std::vector<std::byte> input_;
  std::size_t input_begin_ = 0;  // bytes in input_ not decoded yet
  std::size_t input_end_ = 0;
  std::uint64_t file_read_ = 0;  // of the stored range
  bool at_frame_end_ = false;
  std::uint64_t position_ = 0;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace ckpt
