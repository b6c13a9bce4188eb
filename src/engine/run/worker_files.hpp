#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/worker.hpp"

namespace ckpt {

/// The open files of one worker, within the budget of the run. A file without requests in flight can be closed for
/// another one: least recently used first, sources before targets. For worker.cpp only.
class WorkerFiles {
 public:
  enum class Kind : std::uint8_t { dense, sparse, target };  ///< a source: read directly, or through the page cache
  struct Name {
    Kind kind = Kind::dense;
    std::uint32_t file = 0;
  };

  WorkerFiles(RunShared& shared, Io& io);

  /// Nothing: the budget is used up and all open files have requests in flight. A source that changed since the map was
  /// made fails with `changed`.
  Result<std::optional<FileHandle>> open(Name name);
  void begin_request(Name name) { ++files_[index_of(name)].in_flight; }
  void end_request(Name name) { --files_[index_of(name)].in_flight; }
  /// The last leaf of an open target file was written here.
  void take_tail(std::uint32_t target) { files_[index_of({Kind::target, target})].has_tail = true; }
  /// Closes all files. Syncs each target on the descriptor that wrote it: step 3 of the commit.
  Result<> close_all();
  bool all_direct() const { return all_direct_; }

  std::string source_path(std::uint32_t file) const;

 private:
  struct OpenFile {
    FileHandle handle{};
    std::size_t in_flight = 0;
    bool has_tail = false;
    std::list<std::size_t>::iterator place{};  // in order_, while open
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
  std::list<std::size_t> order_;  // open files, least recently used first
  std::size_t slots_ = 0;         // descriptors in use: the first belongs to the worker, the others to the run
  bool all_direct_ = true;
};

}  // namespace ckpt
