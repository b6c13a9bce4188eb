#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/buffer_pool.hpp"
#include "engine/store/foreign_names.hpp"
#include "format/hash.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The two directories of a run that is saved in tiers, and how the second one is filled.
struct DrainOptions {
  std::string local_directory;         ///< fast, of this node
  std::string run_directory;           ///< STORE/RUN: visible to other nodes and later jobs
  std::uint64_t bytes_per_second = 0;  ///< 0: as fast as it goes
  std::uint64_t keep = 2;              ///< drained copies that stay in the local tier
  ForeignNames foreign_names{};        ///< of checkpoints that the local tier may be part of
  CheckRemovable check_removable{};    ///< of copies in the local tier
};

/// Copies a committed checkpoint of the local tier to the run directory, where it is published like a save
/// (engine/publish/publish.hpp): the same bytes and id, the same name unless another job has taken that generation.
/// Every leaf is compared with its hash on the way. An existing copy is unchanged. Returns its name there.
///
/// errors  checksum, corrupt: of the local copy; no_space, io: nothing is published; not_durable; interrupted
Result<std::string> drain(Io& io, BufferPool& pool, const std::string& name, const DrainOptions& options,
                          const std::atomic<bool>& stop);

/// The same in steps, if each of several nodes has the files of its ranks in its local tier. An unpublished one removes
/// its partial when it is destroyed.
class DrainInSteps {
 public:
  /// On the first node: makes the partial in the run's directory. target_exists: the run's directory has it.
  static Result<std::unique_ptr<DrainInSteps>> begin(Io& io, std::uint64_t step, const Hash128& id,
                                                     const DrainOptions& options);
  ~DrainInSteps();
  /// On the first node, when all nodes have copied. `io` as in begin.
  Result<std::string> publish(Io& io);
  std::size_t file_count() const;

 private:
  struct Impl;
  explicit DrainInSteps(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};
/// On every node: copies the existing files to the partial. One character per file of the checkpoint: '1' if it was
/// copied, else '0'; none at all if this node has no such checkpoint.
/// errors  as drain
Result<std::string> drain_part(Io& io, BufferPool& pool, std::uint64_t step, const Hash128& id,
                               const DrainOptions& options, const std::atomic<bool>& stop);

/// A checkpoint that only the local tier holds.
struct Undrained {
  std::string name;
  std::uint64_t step = 0;
  Hash128 id{};
};
/// The checkpoints of the local tier that can be read and are newer than the whole run directory, newest first: left by
/// a job that ended between its commit and its drain. Older ones are excluded: drained now, they would get a newer
/// generation than later saves.
/// errors  usage: the local tier holds another run
Result<std::vector<Undrained>> find_undrained(Io& io, const DrainOptions& options);

struct Retired {
  struct Kept {
    std::string name;
    std::string because;
  };
  std::vector<std::string> undrained{};  ///< removed: names
  std::vector<Kept> kept{};              ///< not removable, by `check_removable`
};
/// Removes copies from the local tier that are not in use: all but the newest `keep`, only those that are also in the
/// run directory, and older undrained ones, whose drains failed: they are superseded, and no other process would ever
/// remove them.
Result<Retired> retire_drained(Io& io, const DrainOptions& options);

}  // namespace ckpt
