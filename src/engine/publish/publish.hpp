#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/replaced.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/run/plan.hpp"
#include "engine/store/partial_name.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A small file written whole after the bulk: sums, manifest.
struct SmallFile {
  std::string path;  ///< relative to the target's root
  std::string bytes;
};

/// The one commit of the project. Steps, of which only the sixth commits:
///   1 make NAME.partial-ID (a directory, or a file for single-file targets), fsync its parent, lock it exclusively
///   2 reserve space, then the caller writes (run)
///   3 every data file synced on the descriptor that wrote it (run); their folders are synced in 5
///   4 the ranks agree (the caller)
///   5 small files, the last of them the manifest, written and synced; all folders synced, the directory last, then
///     the store's recycle/, which files may have been taken from
///   6 rename to the final name without replacing, parent synced
/// A Publication that is destroyed uncommitted removes its partial, unless it was left. Used by rank 0 only; `io`
/// outlives it.
/// Where the file system has no locks partials are made unlocked, leftover ones are never swept, and nothing is
/// replaced.
class Publication {
 public:
  struct Options {
    std::string target;  ///< final path, file or directory; where commit is given another, only the partial's begin
    std::string id;      ///< hex; names the partial
    bool directory = true;
    /// Replaces a file, or a checkpoint that nobody reads and beside which nothing else stands in its directory: all of
    /// it is among `own_files`, asked again just before. Files by rename, directories by exchange.
    bool overwrite = false;
    OwnFiles own_files{};
    std::vector<std::string> folders{};  ///< relative, made at once: other ranks make their files there
    /// Names of small files given to commit that is_own_name (format/universal/own_names.hpp) does not know. A
    /// leftover that holds anything but these and the planned files is not touched, and is an error: `usage`.
    std::vector<std::string> small_names{};
    bool named_later = false;  ///< `target` may exist: commit is given the final path
    /// Set: a record of finished leaves stands beside the partial, and a leftover of this id whose record has this
    /// hash (of everything else that the leaves' bytes depend on) is taken over rather than swept.
    std::optional<Hash128> resumable{};
    std::uint32_t readers = 0777;  ///< what is made gets no permission beyond these (readers_of)
    bool restart = false;          ///< a leftover is swept all the same
  };
  /// Takes over or sweeps a leftover partial of this id; `locked` when a live process holds it, or reads what is to be
  /// replaced; target_exists; `usage` for what may not be replaced; no_space when the files do not fit, before anything
  /// is created. The files are made with their folders and reserved up to a multiple of kAlignment; whoever writes one
  /// cuts it to its exact size. In a store retired files may be taken instead (recycle.hpp), with the bytes of before.
  static Result<std::unique_ptr<Publication>> begin(Io& io, Options options, const std::vector<TargetFile>& files);

  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  /// Where the caller writes: the partial's path, and after commit the final one.
  const std::string& root() const;
  /// The record for RunOptions::record; "" without one.
  std::string record() const;
  /// What a run that was killed had finished, by its record, by leaf: whatever of it is found to be right need not be
  /// written. Empty where nothing was taken over.
  const std::vector<RecordedLeaf>& taken_over() const;
  /// Ends without a commit, with the partial left to the next run of this id; false, and it is removed after all, where
  /// by its record nothing in it is finished.
  Result<bool> leave();
  /// Steps 5 and 6. On success the target is durable. not_durable: visible, perhaps not durable;
  /// not_done: durable, but what it replaced could not be removed. `internal`: a file has not its planned size.
  /// `target`: the final path, in the same directory, of a publication that is named later. target_exists: it may be
  /// called again, with another name and the same files, whose bytes may be others.
  Result<> commit(const std::vector<SmallFile>& files, const std::string& target = {});

 private:
  class Impl;
  explicit Publication(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Bytes of a name, on every file system of Linux that matters.
constexpr std::size_t kLongestName = 255;
/// Whether a target's name leaves room for what is made beside it: its partial, and the partial's record.
/// errors  usage
Result<> check_name_length(const std::string& target);

/// Makes a rank's own files in a partial that rank 0 began, as Publication::begin does: with their space, up to a
/// multiple of kAlignment. Their folders exist. The caller holds the run (held_store.hpp).
/// errors  no_space, and what is left of them belongs to the partial
Result<> make_files(Io& io, const std::string& root, const std::vector<TargetFile>& files);

struct SweptPartials {
  std::vector<std::string> removed{};  ///< names
  std::vector<Error> kept{};           ///< for what stands in them that no save makes
};
/// Removes every partial of a save in a run's directory that no live process holds. Partials whose file system has no
/// locks stay.
Result<SweptPartials> sweep_partials(Io& io, const std::string& directory);

/// For a target that a publication of this id has made already: makes its name durable, which that run may not have
/// reached, then removes what it left beside it (a partial, or the old one that it replaced). What another process
/// holds stays. not_durable; not_done where the leftover cannot be removed.
Result<> settle_published(Io& io, const std::string& target, const std::string& id);

/// Takes a published checkpoint away: its name first, so that no half of it is ever found, then what it held; a crash
/// between leaves a partial to sweep. False, and nothing is changed, where somebody reads it or the file system cannot
/// tell. `id` is its own.
Result<bool> remove_published(Io& io, const std::string& target, const std::string& id);

}  // namespace ckpt
