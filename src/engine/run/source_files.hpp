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

/// A source is one thing: what its map was made from is what the bytes are read from. Device, inode, size and time of
/// change say whether a file still is what it was. A time of change can be set back after the bytes were overwritten;
/// that of the inode cannot. It also moves where a file gets another name, owner or permissions, which change no byte:
/// where it moved and none of these did, the file counts as changed. Where it is not known, or of a MapFile, it says
/// nothing.
namespace ckpt {

/// errors  changed: what is at `path` now is not what was there
Result<> check_unchanged(const std::string& path, const FileInfo& was, const FileInfo& now);

/// Of an open file of a map; one whose inode the map does not know may be any.
Result<> check_unchanged(const std::string& path, const MapFile& was, const FileInfo& now);

/// Of all files of a map, by their names.
Result<> check_unchanged(Io& io, const Map& map, const std::string& root);

/// Whether a failure may come from a source that changed while it was read: other bytes, or none any more.
bool may_be_change(Errc code);

/// What the files of a source were when they were first looked at, metadata too. Thread-safe.
class SourceFiles {
 public:
  /// errors  changed: it was another when it was first looked at
  Result<> see(const std::string& path, const FileInfo& info);
  std::optional<FileInfo> find(const std::string& path) const;
  /// Who may read all of them, and all files of their map (readers_of): a result is no more readable than that. Nobody
  /// but the owner, where a file of the map was never seen.
  std::uint32_t readers(const Map& map, const std::string& root) const;
  /// Looks at all of them again, by their names.
  /// errors  changed: one is another, or gone
  Result<> look_again(Io& io) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, FileInfo> seen_;  // guarded by mutex_
};

/// An Io through which a source is read: `files` learns of every file that is checked or opened, and whatever does
/// the same to one that changed since then fails. Once `stop` is set (null: never) metadata is no longer read: every
/// look, listing, open and read_at is `interrupted`. `inner` and `stop` outlive it.
std::unique_ptr<Io> make_source_io(Io& inner, std::shared_ptr<SourceFiles> files,
                                   const std::atomic<bool>* stop = nullptr);

}  // namespace ckpt
