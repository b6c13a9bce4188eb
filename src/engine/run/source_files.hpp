#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"

/// A source must be constant: its bytes are read from the files that its map was made from. Device, inode, size and
/// modification time show whether a file has changed. The modification time can be set back after overwriting; the
/// inode's change time cannot. That also changes with names, owner or permissions, which change no byte: if it
/// moved and none of these did, the file counts as changed. If it is unknown, or comes from a MapFile, it is not
/// used.
namespace ckpt {

/// errors  changed: the file at `path` is another one
Result<> check_unchanged(const std::string& path, const FileInfo& was, const FileInfo& now);

/// Of an open file of a map; one whose inode the map does not know may be any.
Result<> check_unchanged(const std::string& path, const MapFile& was, const FileInfo& now);

/// Of all files of a map, by their names.
Result<> check_unchanged(Io& io, const Map& map, const std::string& root);

/// Whether a failure may be caused by a source that changed while it was read: other bytes, or none.
bool may_be_change(Errc code);

/// The state of a source's files when first seen, metadata files included. Thread-safe.
class SourceFiles {
 public:
  /// errors  changed: it differs from when it was first seen
  Result<> see(const std::string& path, const FileInfo& info);
  std::optional<FileInfo> find(const std::string& path) const;
  /// Who may read all of them, and all files of their map (readers_of): a result is no more readable than that. Only
  /// the owner, if a file of the map was never seen.
  std::uint32_t readers(const Map& map, const std::string& root) const;
  /// Checks all of them again, by their names.
  /// errors  changed: one is another, or gone
  Result<> look_again(Io& io) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, FileInfo> seen_;  // guarded by mutex_
};

/// An Io for reading a source: `files` records every file that is checked or opened, and accessing a file that has
/// changed since fails. Once `stop` is set (null: never) metadata is no longer read: stat, listing, open and read_at
/// fail with `interrupted`. `inner` and `stop` outlive it.
std::unique_ptr<Io> make_source_io(Io& inner, std::shared_ptr<SourceFiles> files,
                                   const std::atomic<bool>* stop = nullptr);

}  // namespace ckpt
