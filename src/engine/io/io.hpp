#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/file_system.hpp"
#include "engine/io/host.hpp"
#include "format/result.hpp"
#include "format/text/relative_path.hpp"

namespace ckpt {

/// Direct I/O alignment of offsets, lengths and addresses: the largest logical block on the disks we support.
constexpr std::size_t kAlignment = 4096;

struct FileInfo {
  enum class Kind : std::uint8_t { file, directory, other } kind = Kind::file;  ///< symbolic links are followed
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;  ///< of the last change to the file or its inode; 0: not known
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint32_t permissions = 0700;  ///< the nine permission bits; on file systems without them, the owner's
  std::uint64_t links = 0;           ///< its names; 0 of this and the next two: not known
  std::uint32_t owner = 0;
  std::uint32_t group = 0;
  bool is_mount_point = false;  ///< a directory with another file system, or another folder, mounted on it

  bool is_same_file(const FileInfo& other) const { return device == other.device && inode == other.inode; }
};

struct DirEntry {
  std::string name;
  FileInfo::Kind kind = FileInfo::Kind::file;
  bool is_link = false;  ///< a symbolic link; `kind` is that of its target
};

/// An open file of one Io; -1 is invalid. Closed by Io::close or when the Io is destroyed.
struct FileHandle {
  int value = -1;
};

struct OpenOptions {
  enum class Mode : std::uint8_t {
    read,            ///< an existing file
    write_new,       ///< must not exist; created 0666 under umask
    write_existing,  ///< an existing file, not truncated
    /// An existing file that may be overwritten as if it were new (engine/io/recyclable.hpp). Any error: it may not.
    write_recycled,
  } mode = Mode::read;
  bool direct = false;  ///< request O_DIRECT, if the file system supports it: see `is_direct`
};

/// One read or write in flight, of at least one byte. The buffer belongs to the request until its completion is
/// reaped or the Io is destroyed. On a direct file offset, bytes and data must be multiples of kAlignment, else
/// `internal` (a read may end at the end of the file).
struct Request {
  enum class Op : std::uint8_t { read, write } op = Op::read;
  FileHandle file{};
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t tag = 0;  ///< returned with the completion
};

struct Completion {
  std::uint64_t tag = 0;
  Result<std::size_t> bytes{};  ///< the whole request; less only if a read met the end of the file
};

enum class RenameMode : std::uint8_t { no_replace, replace, exchange };
enum class LockMode : std::uint8_t { shared, exclusive };

/// A held flock; released by the destructor (LOCK_UN first, so that a forked child does not keep it).
class HeldLock {
 public:
  virtual ~HeldLock() = default;
};

/// A callback that is called now and then while the thread of an Io works.
class HeartbeatClient {
 public:
  virtual ~HeartbeatClient() = default;
  virtual void beat() = 0;
};

/// All system calls of the engine: one instance per thread. Names are paths; errors carry the path and the system's
/// reason and use no_space, not_found, io, locked, target_exists, or `unsupported` for what this file system cannot do
/// (exchange, locks). Queued requests are executed in any order; short transfers are continued inside, and only a
/// failed or finished request is reaped. No call may depend on a request in flight: sync, truncate, allocate and close
/// of its file are `internal` until it is reaped.
class Io {
 public:
  virtual ~Io() = default;

  /// "io_uring", "threads", "memory".
  virtual std::string_view name() const = 0;
  /// Another instance on the same file system, for the calling thread; safe to call from any thread.
  virtual Result<std::unique_ptr<Io>> new_instance() const = 0;

  // --- names -------------------------------------------------------------------------------------------------
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  /// Entries in byte order of their names, without "." and "..".
  virtual Result<std::vector<DirEntry>> list(const std::string& path) = 0;
  virtual Result<> make_dir(const std::string& path) = 0;  ///< target_exists if there
  virtual Result<> sync_dir(const std::string& path) = 0;
  virtual Result<> rename(const std::string& from, const std::string& to, RenameMode mode) = 0;
  virtual Result<> unlink(const std::string& path) = 0;
  virtual Result<> remove_dir(const std::string& path) = 0;  ///< must be empty
  /// flock on a file or directory; on return the path still names it. Never waits: `locked` if another process holds
  /// it. The lock stays with the file through a rename.
  virtual Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) = 0;
  /// Whom locks on a path reach.
  virtual LockScope lock_scope(const std::string& path) = 0;
  /// Bytes that an unprivileged writer can still use on the file system of `path`.
  virtual Result<std::uint64_t> free_bytes(const std::string& path) = 0;
  /// Whether overwriting files in a directory is faster, and they may be opened as write_recycled.
  virtual bool recycles(const std::string& directory) = 0;

  // --- files -------------------------------------------------------------------------------------------------
  virtual Result<FileHandle> open(const std::string& path, OpenOptions options) = 0;
  virtual bool is_direct(FileHandle file) const = 0;
  virtual Result<FileInfo> info(FileHandle file) = 0;
  virtual Result<> allocate(FileHandle file, std::uint64_t bytes) = 0;  ///< reserves; no_space before any write
  virtual Result<> truncate(FileHandle file, std::uint64_t bytes) = 0;
  virtual Result<> sync(FileHandle file) = 0;   ///< fdatasync; never retried
  virtual Result<> close(FileHandle file) = 0;  ///< a late write error surfaces here
  /// Synchronous, for metadata. Reads exactly data.size() bytes; `corrupt` with the offset when the file is shorter.
  /// Not for direct files.
  virtual Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) = 0;
  virtual Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) = 0;

  // --- the queue ---------------------------------------------------------------------------------------------
  /// Requests that may be in flight at once.
  virtual std::size_t queue_depth() const = 0;
  /// Starts a request at once. `internal` when queue_depth() are in flight.
  virtual Result<> submit(const Request& request) = 0;
  /// Takes finished requests, at most out.size(); with `wait` blocks until there is at least one (nothing in
  /// flight: returns 0).
  virtual Result<std::size_t> reap(std::span<Completion> out, bool wait) = 0;

  // --- attendance ----------------------------------------------------------------------------------------------
  virtual const Host& host() const = 0;
  /// Called by long work on the thread of this Io, at any frequency: all attendants are called.
  virtual void beat();
  void add_heartbeat(HeartbeatClient& one);
  void remove_heartbeat(HeartbeatClient& one);

 private:
  std::vector<HeartbeatClient*> attended_{};
};

enum class IoKind : std::uint8_t { automatic, uring, threads };
/// Opens the real file system. `automatic` probes io_uring and falls back to the thread pool; `uring` fails with
/// `unsupported` where the kernel or the container forbids it.
Result<std::unique_ptr<Io>> open_io(IoKind kind, std::size_t queue_depth = 32);

/// Reads a small file; if another host replaces it meanwhile, the new one. `corrupt` if it is larger than
/// `limit`.
Result<std::string> read_small_file(Io& io, const std::string& path, std::uint64_t limit);

/// The path without a trailing slash; joins two with one slash; the last part; the rest (or ".").
std::string join_path(std::string_view directory, std::string_view name);
std::string base_name(std::string_view path);
std::string parent_path(std::string_view path);

}  // namespace ckpt
