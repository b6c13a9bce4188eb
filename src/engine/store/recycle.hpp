#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Files of deleted checkpoints for the next save of their store: overwriting them is faster than writing new ones.
/// They are in STORE/.ckpt/recycle, and no manifest names them: nothing there is a checkpoint, and losing them costs
/// only time. The deleter holds the checkpoint's exclusive lock and has durably unlinked its manifest (catalog/trash).
///
/// A save takes a file in steps, so that no crash leaves an unchecked one in place:
///   1 it is renamed into the partial, under a name that no plan holds: of several ranks one gets it
///   2 it is opened as OpenOptions::Mode::write_recycled, which checks that it may be overwritten
///   3 it is cut or extended to its planned space   4 it gets its planned name
/// If a step fails, the file is unlinked and a new one made. Old bytes that a power loss leaves in a file are in no
/// committed checkpoint: each file is synced before the commit, and its root binds id and path. After a power loss a
/// file must not be both back in recycle/ and in a committed checkpoint. The journals of ext4 and XFS hold a rename as
/// one entry, so syncing the partial's folders is enough there; sync_recycling does not rely on that: it makes it
/// durable that the file has left recycle/, before the commit.
namespace ckpt {

/// Suffix of the name of an unchecked file. A leftover partial's file with this suffix is removed: no plan contains
/// such a name.
constexpr std::string_view kUncheckedSuffix = ".unchecked";

/// STORE/.ckpt/recycle
std::string recycle_path(std::string_view store);
/// The recycle directory of the store that contains a run; nothing if there is no
/// store.
/// errors  io
Result<std::optional<std::string>> recycle_above(Io& io, const std::string& run_directory);

/// Which retired set (checkpoint, or optimizer of one) a file comes from. Younger is greater; clocks decide nothing but
/// which goes first.
struct RecycledSet {
  std::uint64_t retired_ms = 0;
  std::uint64_t order = 0;  ///< distinguishes sets of one moment; greatest for the checkpoint saved last
  auto operator<=>(const RecycledSet&) const = default;
};

/// A file in recycle/. Its name, "MILLISECONDS-ORDER-INODE.BYTES", is all that is known of it.
struct RecycledFile {
  RecycledSet set{};
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint64_t space() const;  ///< of its bytes: a multiple of kAlignment, as files are asked for
  std::string name() const;
  /// Nothing for any other name.
  static std::optional<RecycledFile> parse(std::string_view name);
};

/// The files in a recycle/ directory that retire_files put there. Empty if it does not exist.
Result<std::vector<RecycledFile>> list_recycled(Io& io, const std::string& directory);

/// Moves the safetensors files of `folders` (those that are there) into a store's recycle/, durably; their bytes.
/// errors  after any some may have been moved; again moves the rest
Result<std::uint64_t> retire_files(Io& io, const std::string& store, const RecycledSet& set,
                                   const std::vector<std::string>& folders);

/// The files that one save may take. Listed once.
class RecycledFiles {
 public:
  explicit RecycledFiles(Io& io) : io_(&io) {}  ///< nothing to take; `io` outlives it
  /// Files for a partial in this run. None if there are none, or if reusing them gains
  /// nothing.
  static RecycledFiles above(Io& io, const std::string& run_directory);

  /// Puts a file of `bytes`, with its space and bytes of before, at `path`, where nothing is. The smallest whose space
  /// is as large, unless that is more than twice as large; else the largest of the smaller ones. False: make a new one.
  bool take(const std::string& path, std::uint64_t bytes);
  /// Unlinks all remaining files, as space is short; false if there were none.
  bool give_up();
  std::uint64_t bytes() const;

 private:
  std::vector<RecycledFile>::iterator choose(const std::string& path, std::uint64_t bytes);
  Result<> prepare(const std::string& unchecked, const std::string& path, std::uint64_t bytes);

  Io* io_;
  std::string directory_{};
  std::vector<RecycledFile> files_{};  // smallest first
};

/// Makes it durable that files taken into partials of this run are no longer in recycle/.
Result<> sync_recycling(Io& io, const std::string& run_directory);

}  // namespace ckpt
