#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "support/memory_io.hpp"

namespace ckpt {

/// A file or directory. Two states: the view of a running system, and the contents of the disk.
struct MemoryNode {
  FileInfo::Kind kind = FileInfo::Kind::file;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::string bytes;
  std::string durable_bytes;
  std::map<std::string, std::shared_ptr<MemoryNode>> entries;
  std::map<std::string, std::shared_ptr<MemoryNode>> durable_entries;
  unsigned shared_locks = 0;
  bool exclusive_lock = false;
  bool unlike_new = false;  // another owner, another mode, shared bytes
  unsigned opens = 0;       // open handles, of this boot
};
using MemoryNodePtr = std::shared_ptr<MemoryNode>;

/// One entry of a directory set (or removed, where `node` is null) by a name operation.
struct NameChange {
  MemoryNodePtr directory;
  std::string name;
  MemoryNodePtr node;
};

struct MemoryDisk::State {
  explicit State(Options chosen);

  const Options options;
  std::recursive_mutex mutex;  // so that a test may make several changes at once
  // All below guarded by mutex.
  MemoryNodePtr root;
  std::uint64_t next_inode = 1;
  std::int64_t clock_ns = 1'700'000'000'000'000'000;    // each change is a nanosecond later
  std::uint64_t boots = 0;                              // open files and locks of an earlier one are closed
  std::vector<std::vector<NameChange>> unsynced_names;  // by operation, in order

  MemoryNodePtr make(FileInfo::Kind kind);
  /// The node of a path, or null.
  MemoryNodePtr find(std::string_view path) const;
  /// The directory that contains a path's last part, or null; that part.
  std::pair<MemoryNodePtr, std::string> place(std::string_view path) const;
  /// Carries out one name operation.
  void change(std::vector<NameChange> changes);
  void sync_names(const MemoryNodePtr& directory);
  std::uint64_t names_of(const MemoryNode& node) const;
  std::uint64_t used_bytes() const;
  std::uint64_t free_bytes() const;
};

FileInfo memory_info(const MemoryNode& node);

}  // namespace ckpt
