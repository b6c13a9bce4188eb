#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/hard_links.hpp"
#include "engine/io/held_directories.hpp"
#include "engine/io/io.hpp"
#include "engine/io/transfer.hpp"
#include "engine/io/unique_fd.hpp"

namespace ckpt {

/// The system calls that block, shared by the Ios of real file systems. Queues are in the derived classes.
class PosixIo : public Io, public HardLinks, public HoldsDirectories {
 public:
  Result<std::unique_ptr<HeldDirectory>> hold_directory(const std::string& path, const HoldOptions& options) override {
    return held_.hold(path, options);
  }
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& path) override;
  Result<> make_dir(const std::string& path) override;
  Result<> sync_dir(const std::string& path) override;
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override;
  Result<> link(const std::string& from, const std::string& to) override;
  Result<> unlink(const std::string& path) override;
  Result<> remove_dir(const std::string& path) override;
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override;
  LockScope lock_scope(const std::string& path) override { return lock_scope_of(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override;
  bool recycles(const std::string& directory) override;

  Result<FileHandle> open(const std::string& path, OpenOptions options) override;
  bool is_direct(FileHandle file) const override;
  Result<FileInfo> info(FileHandle file) override;
  Result<> allocate(FileHandle file, std::uint64_t bytes) override;
  Result<> truncate(FileHandle file, std::uint64_t bytes) override;
  Result<> sync(FileHandle file) override;
  Result<> close(FileHandle file) override;
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override;
  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override;

  std::size_t queue_depth() const override { return queue_depth_; }
  const Host& host() const override { return host_; }

 protected:
  PosixIo(std::size_t queue_depth, HeldDirectories held) : held_(std::move(held)), queue_depth_(queue_depth) {}
  const HeldDirectories& held() const { return held_; }

  /// Checks a request before it is started: an open file, alignment for direct I/O, room in the queue. Counts it as in
  /// flight.
  Result<Transfer> admit(const Request& request);
  /// The counterpart: the request is reaped, or was never started.
  void retire(const Request& request);
  std::size_t in_flight() const { return in_flight_; }

 private:
  struct OpenFile {
    UniqueFd fd;
    std::shared_ptr<const std::string> path;
    bool direct = false;
    std::size_t in_flight = 0;
  };
  OpenFile* find(FileHandle file);
  const OpenFile* find(FileHandle file) const;
  /// The file, for calls that may not overlap requests in flight on it (the ring orders nothing).
  Result<OpenFile*> idle(FileHandle file, const char* operation);

  HeldDirectories held_;
  ThisHost host_;
  std::size_t queue_depth_;
  std::size_t in_flight_ = 0;
  std::vector<OpenFile> files_;  // by handle; closed ones have no descriptor and are used again
};

/// RenameMode::no_replace if the file system refuses renameat2's flags: files by linkat, then unlink; directories by
/// rename after a check that the name is free (an empty directory made in between would be replaced). `from`, `to`: the
/// paths, for messages.
Result<> rename_without_flags(const ChangePlace& source, const ChangePlace& target, const std::string& from,
                              const std::string& to);

}  // namespace ckpt
