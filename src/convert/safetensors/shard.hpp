#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/io.hpp"
#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt::safetensors {

/// A file's header and facts from it.
struct Shard {
  MapFile file{};
  Header header{};
  std::string id{};                      ///< ckpt.id, or empty
  std::optional<SavedOffsets> slices{};  ///< set: the file holds slices of tensors

  const std::string* metadata(std::string_view key) const;
};

/// Reads headers one after the other into one buffer. One read per file if the header is short.
class ShardReader {
 public:
  /// limit   bytes of memory for all headers together; beyond it `memory`
  ShardReader(Io& io, std::string root, std::uint64_t limit) : io_(io), root_(std::move(root)), left_(limit) {}

  /// Opens root/relative ("" = root), reads and checks its header, and adds path and header to `metadata`.
  /// errors  as the Io; corrupt as parse_header, with the file; incomplete: the file is a Git LFS pointer
  Result<Shard> read(const std::string& relative, Hasher& metadata);

 private:
  Result<Shard> read_open(FileHandle handle, const std::string& relative, Hasher& metadata);

  Io& io_;
  std::string root_;
  std::uint64_t left_;
  std::string buffer_{};
};

}  // namespace ckpt::safetensors
