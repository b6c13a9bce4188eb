#pragma once

#include <memory>
#include <utility>

#include "engine/io/hard_links.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/io/io.hpp"

namespace ckpt {

/// An Io that forwards everything to another one; decorators override parts of it. `fresh` is the decorator's.
class ForwardingIo : public Io, public HardLinks, public HoldsDirectories {
 public:
  /// `inner` outlives it.
  explicit ForwardingIo(Io& inner) : inner_(&inner) {}
  explicit ForwardingIo(std::unique_ptr<Io> inner) : owned_(std::move(inner)), inner_(owned_.get()) {}

  std::string_view name() const override { return inner().name(); }
  Result<std::unique_ptr<HeldDirectory>> hold_directory(const std::string& path, const HoldOptions& options) override {
    return ckpt::hold_directory(*inner_, path, options);
  }
  Result<> link(const std::string& from, const std::string& to) override { return link_file(*inner_, from, to); }
  Result<FileInfo> stat(const std::string& path) override { return inner_->stat(path); }
  Result<std::vector<DirEntry>> list(const std::string& path) override { return inner_->list(path); }
  Result<> make_dir(const std::string& path) override { return inner_->make_dir(path); }
  Result<> sync_dir(const std::string& path) override { return inner_->sync_dir(path); }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    return inner_->rename(from, to, mode);
  }
  Result<> unlink(const std::string& path) override { return inner_->unlink(path); }
  Result<> remove_dir(const std::string& path) override { return inner_->remove_dir(path); }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    return inner_->lock(path, mode);
  }
  LockScope lock_scope(const std::string& path) override { return inner_->lock_scope(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return inner_->free_bytes(path); }
  bool recycles(const std::string& directory) override { return inner_->recycles(directory); }

  Result<FileHandle> open(const std::string& path, OpenOptions options) override { return inner_->open(path, options); }
  bool is_direct(FileHandle file) const override { return inner().is_direct(file); }
  Result<FileInfo> info(FileHandle file) override { return inner_->info(file); }
  Result<> allocate(FileHandle file, std::uint64_t bytes) override { return inner_->allocate(file, bytes); }
  Result<> truncate(FileHandle file, std::uint64_t bytes) override { return inner_->truncate(file, bytes); }
  Result<> sync(FileHandle file) override { return inner_->sync(file); }
  Result<> close(FileHandle file) override { return inner_->close(file); }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    return inner_->read_at(file, offset, data);
  }
  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override {
    return inner_->write_at(file, offset, data);
  }

  std::size_t queue_depth() const override { return inner().queue_depth(); }
  Result<> submit(const Request& request) override { return inner_->submit(request); }
  Result<std::size_t> reap(std::span<Completion> out, bool wait) override { return inner_->reap(out, wait); }

  const Host& host() const override { return inner().host(); }
  void beat() override {
    Io::beat();
    inner_->beat();
  }

 protected:
  const Io& inner() const { return *inner_; }

 private:
  std::unique_ptr<Io> owned_{};  // null if the caller owns it
  Io* inner_;
};

}  // namespace ckpt
