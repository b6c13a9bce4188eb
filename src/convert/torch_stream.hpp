#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/model/box.hpp"

namespace ckpt {

/// Reads the metadata of one stream inside an open file with few system calls, and caches it. Offsets are bytes from
/// the start of the stream.
class StreamReader {
 public:
  StreamReader(Io& io, FileHandle file, const std::string& path, Extent stream)
      : io_(io), file_(file), path_(path), stream_(stream) {}

  std::uint64_t size() const { return stream_.size(); }
  const std::string& path() const { return path_; }
  /// Bytes from the start of the file.
  std::uint64_t in_file(std::uint64_t offset) const { return stream_.begin + offset; }

  /// The bytes [begin, begin + bytes), valid as long as the reader. corrupt: they run past the stream.
  Result<std::span<const std::byte>> read(std::uint64_t begin, std::uint64_t bytes);

  /// Reads `bytes` at each of `begins`, sorted ascending, and hands them over in any order: (index, the bytes). Near
  /// ones are read together, the others are queued.
  using Visitor = std::function<Result<>(std::size_t index, std::span<const std::byte> bytes)>;
  Result<> read_each(std::span<const std::uint64_t> begins, std::size_t bytes, const Visitor& visit);

  /// The error with this file and its place in it; the message names the path first.
  Error at(Error error, std::uint64_t offset) const;

 private:
  struct Window {
    std::uint64_t begin = 0;
    std::vector<std::byte> bytes{};
  };
  struct Group;  // begins that are read together

  std::span<const std::byte> cached(std::uint64_t begin, std::uint64_t bytes) const;
  Result<> check_inside(std::uint64_t begin, std::uint64_t bytes) const;
  Result<> read_groups(std::span<const Group> groups, std::span<const std::uint64_t> begins, std::size_t bytes,
                       const Visitor& visit);

  Io& io_;
  FileHandle file_;
  const std::string& path_;
  Extent stream_;
  std::deque<Window> windows_;
};

}  // namespace ckpt
