#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt {

/// A file system in memory that forgets, at power_off, what was not synced: bytes by Io::sync, names by Io::sync_dir of
/// their directory. Thread-safe; each Io of it is used by one thread. Paths start at "/".
class MemoryDisk {
 public:
  struct Options {
    std::uint64_t capacity_bytes = std::uint64_t{1} << 30;
    bool direct = true;          ///< false: direct I/O is refused, files are opened without
    bool exchange = true;        ///< false: RenameMode::exchange is `unsupported`
    bool locks = true;           ///< false: locks are `unsupported`
    bool half_rename = false;    ///< true: a no_replace rename of a file leaves both names and fails, as linkat
                                 ///< followed by an unlink that failed
    bool whole_renames = false;  ///< true: a rename that is synced in one of its directories is in both, as with ext4,
                                 ///< XFS and Btrfs, whose journals hold it as one
    bool recycles = true;        ///< false: as a file system that is neither ext4 nor XFS
    std::uint64_t seed = 1;      ///< decides in which order queued requests are carried out
  };
  /// The part of unsynced data that survives a power loss. By default nothing.
  struct PowerLoss {
    std::size_t name_operations = 0;  ///< the first so many since the last sync survive, as in a journal
    std::uint64_t block_seed = 0;     ///< other than 0: each unsynced 4 KiB block survives or not, by this seed
  };
  static constexpr std::size_t kAllNames = SIZE_MAX;

  MemoryDisk();
  explicit MemoryDisk(Options options);
  ~MemoryDisk();

  /// An Io named "memory".
  std::unique_ptr<Io> io(std::size_t queue_depth = 8) const;
  /// Ends every open file and lock, and keeps only the contents of the disk after a power loss.
  void power_off(PowerLoss spared);
  void power_off();

  // For assertions, past all Ios:
  /// Every file and directory ("name/"), sorted.
  std::vector<std::string> tree() const;
  /// A file's bytes; "(none)" if there is no such file.
  std::string text(const std::string& path) const;
  /// Other threads see all of a change or nothing.
  void at_once(const std::function<void()>& change);
  /// Makes a durable file, with its directories.
  void put(const std::string& path, std::string bytes);
  /// Gives a file a second name, durable.
  void link(const std::string& path, const std::string& other);
  /// Gives a file an owner or mode that differs from new files, or makes it share its bytes.
  void make_unlike_new(const std::string& path);
  std::uint64_t inode(const std::string& path) const;  ///< 0 if there is no such file

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ckpt
