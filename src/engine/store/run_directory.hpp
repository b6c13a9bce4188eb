#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt {

/// The name of a committed checkpoint in the directory of its run: "step-000001000.g7".
struct CheckpointName {
  static constexpr std::uint64_t kGreatest = INT64_MAX;  ///< of both numbers: the catalog holds them signed
  std::uint64_t step = 0;
  std::uint64_t generation = 0;  ///< counts the commits of a run, from 1; orders them
  std::string text() const;
  /// Nothing for any other name.
  static std::optional<CheckpointName> parse(std::string_view text);
  bool operator==(const CheckpointName&) const = default;
};

/// An absolute path up to the first committed checkpoint of ours in it, by its name; all of it if it is in none.
std::string without_checkpoint(const std::string& whole);
/// Refuses to add to a directory that is or lies in a checkpoint, whose files are those that it was committed with: what is
/// added would count as damage, and be deleted with it. The directory need not exist.
/// errors  usage
Result<> check_in_no_checkpoint(const std::string& directory);

/// The name of this step's partial before its generation is known: "step-000001000".
std::string step_text(std::uint64_t step);

/// Whether a name is that of a save's partial: of a step, or of a checkpoint being removed.
bool is_save_partial(std::string_view name);

/// Creates a directory and its parents if missing; durable. Several ranks may do so at once.
Result<> make_directory(Io& io, const std::string& directory);

/// Makes a directory and its parents below `top` durable: their creator may have been killed before doing
/// so.
Result<> sync_directories(Io& io, const std::string& directory, const std::string& top);

/// The committed checkpoints of a run, newest (greatest generation, then greatest name) first. None if the directory
/// does not exist. Never uses a catalog, and there is no `latest` file.
Result<std::vector<std::string>> list_checkpoints(Io& io, const std::string& run_directory);

/// The largest manifest that is read of a run's checkpoints, of which one command may read all: 16,384 ranks take 2 MB.
constexpr std::uint64_t kMostManifestBytes = std::uint64_t{256} << 20;
/// The manifest of a checkpoint in its directory.
/// errors  as read_small_file and parse_manifest
Result<universal::Manifest> read_manifest(Io& io, const std::string& checkpoint);

/// The committed checkpoint of this step and id; nothing if there is none, or damaged.
/// errors  io, memory: the directory, or a manifest that may be the one, cannot be read
Result<std::optional<std::string>> find_committed(Io& io, const std::string& run_directory, std::uint64_t step,
                                                  const Hash128& id);

/// The generation of the next commit: 1 + the greatest in names of the run and of its trash, including records of
/// removed checkpoints. Hold the lock of the run's directory from before this until the commit is durable.
Result<std::uint64_t> next_generation(Io& io, const std::string& run_directory);

/// Takes the exclusive lock of a run's directory, waiting until the deadline. Null if the file system has no locks.
/// errors  locked: another process held it all the time
Result<std::unique_ptr<HeldLock>> lock_run(Io& io, const std::string& run_directory, Deadline deadline);

}  // namespace ckpt
