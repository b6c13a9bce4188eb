#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "engine/worker.hpp"

namespace ckpt {

/// The files that one worker has open, within what the run may open: a file that no request is in flight on gives way
/// to another one, the least recently used first, sources before targets. For worker.cpp alone.
class WorkerFiles {
 public:
  enum class Kind : std::uint8_t { dense, sparse, target };  ///< a source: read directly, or through the page cache
  struct Name {
    Kind kind = Kind::dense;
    std::uint32_t file = 0;
  };

  WorkerFiles(RunShared& shared, Io& io);

  /// Nothing: as many are open as may be, all with requests in flight. A source that is no longer what the map was made
  /// from is `changed`.
  Result<std::optional<FileHandle>> open(Name name);
  void begin_request(Name name) { ++files_[index_of(name)].in_flight; }
  void end_request(Name name) { --files_[index_of(name)].in_flight; }
  /// The last leaf of a target file, which is open, was written here.
  void take_tail(std::uint32_t target) { files_[index_of({Kind::target, target})].has_tail = true; }
  /// Closes all. Targets are synced, each on the descriptor that wrote it: step 3 of the commit.
  Result<> close_all();
  bool all_direct() const { return all_direct_; }

  std::string source_path(std::uint32_t file) const;

 private:
  struct OpenFile {
    FileHandle handle{};
    std::size_t in_flight = 0;
    bool has_tail = false;
    std::list<std::size_t>::iterator place{};  // in order_, while it is open
  };

  std::size_t index_of(Name name) const;
  Name name_of(std::size_t index) const;
  Result<bool> make_room();
  Result<bool> close_idle();
  Result<FileHandle> open_now(Name name);
  Result<> close(std::size_t index);
  void leave_slot();

  RunShared& shared_;
  Io& io_;
  std::size_t source_count_;
  std::vector<OpenFile> files_;   // dense and sparse of each source, then the targets
  std::list<std::size_t> order_;  // open ones, the least recently used first
  std::size_t slots_ = 0;         // descriptors taken: the first is each worker's own, the others the run's
  bool all_direct_ = true;
};

}  // namespace ckpt
