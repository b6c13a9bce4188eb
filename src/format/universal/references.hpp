#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

/// What a virtual checkpoint holds instead of tensor bytes: the files of other checkpoints, and places in them.
/// FORMAT.md section 14.
namespace ckpt::universal {

constexpr std::string_view kVirtualFeature = "virtual";  ///< required
constexpr std::uint64_t kHeadBytes = std::uint64_t{64} << 10;

/// A file of another checkpoint, and how to recognise it.
struct ReferencedFile {
  std::string path{};  ///< below the source, with '/'; "" = the source is the file
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  Hash128 head{};  ///< of its first kHeadBytes, or all of it
  bool operator==(const ReferencedFile&) const = default;
};

/// A checkpoint that was converted without moving its bytes.
struct ReferencedSource {
  std::string path{};  ///< absolute, or relative to the directory of the virtual checkpoint
  std::vector<ReferencedFile> files{};
  bool operator==(const ReferencedSource&) const = default;
};

/// The member `references`.
/// errors  internal: a path that is not UTF-8
Result<> put_references(json::Writer& out, std::span<const ReferencedSource> sources);
/// errors  corrupt: the message is the reason alone
Result<std::vector<ReferencedSource>> read_references(const json::Value& value);

/// The member `chunks` of a row. Locator::file numbers the files of all sources in order.
void put_chunks(json::Writer& out, const Tensor& tensor, std::span<const PlacedChunk> chunks);
/// errors  corrupt: the message is the reason alone
Result<std::vector<PlacedChunk>> read_chunks(const json::Value& value, const Tensor& tensor);

/// Checks that a chunk is a part of its tensor and that its bytes are inside its file.
/// errors  corrupt: the message is the reason alone
Result<> check_chunk(const PlacedChunk& placed, const Tensor& tensor, std::uint64_t file_bytes);

}  // namespace ckpt::universal
