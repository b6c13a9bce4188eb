#include "convert/safetensors/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "convert/metadata_memory.hpp"

namespace ckpt::safetensors {
namespace {

/// Holds the header of all but the largest files (some 500 tensors), so that opening one costs a single read.
constexpr std::uint64_t kFirstRead = 64 << 10;
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

}  // namespace

const std::string* Shard::metadata(std::string_view key) const {
  for (const auto& [name, value] : header.metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<Shard> ShardReader::read(const std::string& relative, Hasher& metadata) {
  const std::string path = relative.empty() ? root_ : join_path(root_, relative);
  // Asked before opening: opening a FIFO would wait for its writer.
  CKPT_TRY(const FileInfo info, io_.stat(path));
  if (info.kind != FileInfo::Kind::file)
    return fail({.code = Errc::corrupt, .message = path + ": not a file", .file = path});
  CKPT_TRY(const FileHandle handle, io_.open(path, {}));
  auto shard = read_open(handle, relative, metadata);
  const auto closed = io_.close(handle);
  if (!shard) return fail(with_file(std::move(shard).error(), path));
  if (!closed) return fail(closed.error());
  return shard;
}

Result<Shard> ShardReader::read_open(FileHandle handle, const std::string& relative, Hasher& metadata) {
  Shard shard;
  CKPT_TRY(const FileInfo info, io_.info(handle));
  shard.file = {.path = relative, .bytes = info.bytes, .mtime_ns = info.mtime_ns};

  buffer_.resize(static_cast<std::size_t>(std::min(info.bytes, kFirstRead)));
  CKPT_CHECK(io_.read_at(handle, 0, std::as_writable_bytes(std::span(buffer_))));
  if (buffer_.starts_with(kLfsPointer))
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: a Git LFS pointer: the data was not downloaded",
                                        relative.empty() ? root_ : join_path(root_, relative)),
                 .hint = "fetch the data: git lfs pull"});
  CKPT_TRY(const std::uint64_t data_begin, header_bytes(std::as_bytes(std::span(buffer_)), info.bytes));
  const std::uint64_t needed = memory_for(data_begin, MetadataCost::safetensors_header);
  if (needed > left_)
    return fail(over_metadata_limit(relative.empty() ? root_ : join_path(root_, relative), data_begin, needed, left_));
  left_ -= needed;
  if (const std::size_t have = buffer_.size(); have < data_begin) {
    buffer_.resize(static_cast<std::size_t>(data_begin));
    CKPT_CHECK(io_.read_at(handle, have, std::as_writable_bytes(std::span(buffer_).subspan(have))));
  }
  const std::span head = std::as_bytes(std::span(buffer_)).first(static_cast<std::size_t>(data_begin));
  metadata.update_u64(relative.size());
  metadata.update(relative);
  metadata.update(head);
  auto header = parse_header(head, info.bytes);
  if (!header)
    return fail(with_hint(std::move(header).error(), "the file is damaged or incomplete: copy or download it again"));
  shard.header = *std::move(header);
  if (const std::string* id = shard.metadata(kIdKey)) shard.id = *id;
  if (const std::string* slices = shard.metadata(kSlicesKey)) {
    CKPT_TRY(shard.slices, parse_saved_offsets(*slices));
  }
  return shard;
}

}  // namespace ckpt::safetensors
