#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Retired files that feed the next save of their store: overwriting them is faster than writing new ones. They lie in
/// STORE/.ckpt/recycle, named by no manifest; nothing there is a checkpoint, and what is lost there costs time alone.
/// Who retires them holds their checkpoint's exclusive lock and has unlinked its manifest, durably (catalog/trash).
///
/// A save takes a file in steps, so that no crash leaves one in its place that was not looked at:
///   1 it is renamed into the partial, under a name that no plan holds: of several ranks one gets it
///   2 it is opened as OpenOptions::Mode::write_recycled, which asks whether it may be overwritten
///   3 it is cut or extended to its planned space   4 it gets its planned name
/// What fails at any step is unlinked, and a new file made. The bytes of before that a power loss leaves in it are in
/// no committed checkpoint: each file is synced before the commit, and its root binds id and path. After a power loss a
/// file must not be back in recycle/ and in a committed checkpoint too. The journals of ext4 and XFS hold a rename as
/// one, so syncing the partial's folders is enough there; settle_recycling asks for no such promise: it makes it
/// durable that recycle/ has it no more, before the commit.
namespace ckpt {

/// Ends the name of a file that was not looked at yet. What finds one in a leftover partial removes it: no plan holds
/// such a name.
constexpr std::string_view kUncheckedSuffix = ".unchecked";

/// STORE/.ckpt/recycle
std::string recycle_path(std::string_view store);
/// That of the store that a run's directory lies in: the nearest above, or it itself, that keeps things for itself.
/// Nothing where there is no store.
/// errors  io
Result<std::optional<std::string>> recycle_above(Io& io, const std::string& run_directory);

/// Which retired set (checkpoint, or optimizer of one) a file comes from. Younger is greater; clocks decide nothing but
/// which goes first.
struct RecycledSet {
  std::uint64_t retired_ms = 0;
  std::uint64_t order = 0;  ///< tells sets of one moment apart; of what was saved last it is greatest
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

/// What stands in a recycle/ directory; what was not put there by retire_files is left out. Empty if there is none.
Result<std::vector<RecycledFile>> list_recycled(Io& io, const std::string& directory);

/// Moves the safetensors files of `folders` (those that are there) into a store's recycle/, durably; their bytes.
/// errors  after any some may have been moved; again moves the rest
Result<std::uint64_t> retire_files(Io& io, const std::string& store, const RecycledSet& set,
                                   const std::vector<std::string>& folders);

/// For one save: what it may take. Listed once.
class RecycledFiles {
 public:
  explicit RecycledFiles(Io& io) : io_(&io) {}  ///< nothing to take; `io` outlives it
  /// For files of a partial that lies in this run's directory. Where there are none, or where nothing is gained by
  /// them, there is nothing to take.
  static RecycledFiles above(Io& io, const std::string& run_directory);

  /// Puts a file of `bytes`, with its space and bytes of before, at `path`, where nothing is. The smallest whose space
  /// is as large, unless that is more than twice as large; else the largest of the smaller ones. False: make a new one.
  bool take(const std::string& path, std::uint64_t bytes);
  /// Unlinks all that is left, as space is short; false where there was nothing.
  bool give_up();
  std::uint64_t bytes() const;

 private:
  std::vector<RecycledFile>::iterator choose(const std::string& path, std::uint64_t bytes);
  Result<> prepare(const std::string& unchecked, const std::string& path, std::uint64_t bytes);

  Io* io_;
  std::string directory_{};
  std::vector<RecycledFile> files_{};  // smallest first
};

/// Makes it durable that what was taken into partials in this run's directory is in recycle/ no more.
Result<> settle_recycling(Io& io, const std::string& run_directory);

}  // namespace ckpt
