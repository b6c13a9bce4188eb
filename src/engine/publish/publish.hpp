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
#include "engine/publish/strays.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/run/plan.hpp"
#include "engine/store/partial_name.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A small file written after the data: sums, manifest.
struct SmallFile {
  std::string path;  ///< relative to the target's root
  std::string bytes;
};

/// The one commit of the project. Steps, of which only the sixth commits:
///   1 make NAME.partial-ID (a directory, or a file for single-file targets), fsync its parent,
///     lock it exclusively
///   2 reserve space, then the caller writes (run)
///   3 every data file synced on the descriptor that wrote it (run); their folders are synced in 5
///   4 the ranks agree (the caller)
///   5 small files, the last of them the manifest, written and synced; all folders synced, the directory last, then
///     the store's recycle/, which files may have been taken from
///   6 rename to the final name without replacing, parent synced
/// A Publication that is destroyed uncommitted removes its partial, unless it was left. Used by rank 0 only; `io`
/// outlives it. On a file system without locks, partials are not locked, leftovers are never swept, and nothing is
/// replaced.
class Publication {
 public:
  struct Options {
    std::string target;  ///< final path, file or directory; where commit is given another, only the partial's begin
    std::string id;      ///< hex; names the partial
    bool directory = true;
    /// Replaces a file, or a checkpoint that has no readers and whose directory holds only files of `own_files`,
    /// checked again directly before. Files by rename, directories by exchange.
    bool overwrite = false;
    OwnFiles own_files{};
    std::vector<std::string> folders{};  ///< relative, made at once: other ranks make their files there
    /// Names of small files given to commit that is_own_name (format/universal/own_names.hpp) does not know. A leftover
    /// that holds other files is not changed, and is an error: `usage`.
    std::vector<std::string> small_names{};
    OwnName own_name{};        ///< set: so may be called what other processes create, whose names are not known yet
    bool named_later = false;  ///< `target` may exist: commit is given the final path
    /// Set: a record of finished leaves is kept next to the partial, and a leftover of this id whose record has this
    /// hash (of everything else that the leaves' bytes depend on) is resumed instead of swept.
    std::optional<Hash128> resumable{};
    std::uint32_t readers = 0777;  ///< new files get no permission beyond these (readers_of)
    bool restart = false;          ///< a leftover is swept even so
  };
  /// Resumes or sweeps a leftover partial of this id; `locked` if a live process holds it, or uses the target to be
  /// replaced; target_exists; `usage` if the target must not be replaced; no_space if the files do not fit, before
  /// anything is created. Files are created with their folders and reserved up to a multiple of kAlignment; the writer
  /// truncates each to its exact size. In a store, recycled files with old bytes may be used (recycle.hpp).
  static Result<std::unique_ptr<Publication>> begin(Io& io, Options options, const std::vector<TargetFile>& files);

  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  /// The path to write to: the partial, and after commit the target.
  const std::string& root() const;
  /// The record for RunOptions::record; "" without one.
  std::string record() const;
  /// The finished leaves of a killed run, from its record, by leaf: those that match their hash need not be written
  /// again. Empty if nothing was resumed.
  const std::vector<RecordedLeaf>& taken_over() const;
  /// Ends without a commit, with the partial left to the next run of this id; false, and it is removed after all, where
  /// by its record nothing in it is finished.
  Result<bool> keep_partial();
  /// Steps 5 and 6. On success the target is durable. not_durable: visible, perhaps not durable; not_done: durable, but
  /// the replaced target could not be removed. `internal`: a file does not have its planned size. `target`: the final
  /// path, in the same directory, of a publication that is named later. target_exists: it may be called again with
  /// another name and the same files, with new bytes.
  Result<> commit(const std::vector<SmallFile>& files, const std::string& target = {});

 private:
  class Impl;
  explicit Publication(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Whether a target's name leaves room for the names derived from it: its partial, and the partial's record.
/// errors  usage
Result<> check_name_length(const std::string& target);

/// Creates a rank's own files in a partial that rank 0 began, as Publication::begin does: with their space, up to a
/// multiple of kAlignment. Their folders exist. The caller holds the run (held_store.hpp).
/// errors  no_space; files already made belong to the partial
Result<> make_files(Io& io, const std::string& root, const std::vector<TargetFile>& files);

struct SweptPartials {
  std::vector<std::string> removed{};  ///< names
  std::vector<Error> kept{};           ///< for content that no save makes
};
/// Removes every partial of a save in a run's directory that no live process holds. Partials whose file system has no
/// locks stay.
Result<SweptPartials> sweep_partials(Io& io, const std::string& directory);

/// For a target that a publication of this id has already made: makes its name durable, which that run may not have
/// reached, then removes its leftovers (a partial, or the replaced old target). Files that another process holds stay.
/// not_durable; not_done if a leftover cannot be removed.
Result<> finish_published(Io& io, const std::string& target, const std::string& id);

/// Asked under the exclusive lock of a checkpoint: an error says why it must stay.
using CheckRemovable = std::function<Result<>(Io& io, const std::string& checkpoint)>;

struct RemovedCheckpoint {
  bool gone = false;
  std::string kept_because{};  ///< what `check` said; "" if it is in use, or that is unknown
};
/// Removes a published checkpoint: its name first, so that half of it is never found, then its files; a crash in
/// between leaves a partial to sweep. If it is kept nothing is changed. `id` is its own.
Result<RemovedCheckpoint> remove_published(Io& io, const std::string& target, const std::string& id,
                                           const CheckRemovable& check);

}  // namespace ckpt
