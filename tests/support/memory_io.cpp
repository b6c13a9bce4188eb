#include "support/memory_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <utility>

#include "engine/io/hard_links.hpp"
#include "engine/io/system_error.hpp"
#include "support/memory_tree.hpp"

namespace ckpt {
namespace {

using State = MemoryDisk::State;
using Kind = FileInfo::Kind;

class MemoryLock final : public HeldLock {
 public:
  MemoryLock(std::shared_ptr<State> state, MemoryNodePtr node, bool exclusive)
      : state_(std::move(state)), node_(std::move(node)), exclusive_(exclusive), boot_(state_->boots) {}
  ~MemoryLock() override {
    const std::lock_guard held(state_->mutex);
    if (boot_ != state_->boots) return;
    if (exclusive_) {
      node_->exclusive_lock = false;
    } else {
      --node_->shared_locks;
    }
  }
  MemoryLock(const MemoryLock&) = delete;
  MemoryLock& operator=(const MemoryLock&) = delete;

 private:
  std::shared_ptr<State> state_;
  MemoryNodePtr node_;
  bool exclusive_;
  std::uint64_t boot_;
};

class MemoryIo final : public Io, public HardLinks {
 public:
  MemoryIo(std::shared_ptr<State> state, std::size_t queue_depth)
      : state_(std::move(state)), queue_depth_(queue_depth), random_(state_->options.seed) {}

  ~MemoryIo() override {
    const std::lock_guard held(state_->mutex);
    for (const OpenFile& file : files_) drop(file);
  }
  MemoryIo(const MemoryIo&) = delete;
  MemoryIo& operator=(const MemoryIo&) = delete;

  std::string_view name() const override { return "memory"; }
  Result<std::unique_ptr<Io>> new_instance() const override {
    return std::unique_ptr<Io>(std::make_unique<MemoryIo>(state_, queue_depth_));
  }

  Result<FileInfo> stat(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    const MemoryNodePtr node = state_->find(path);
    if (!node) return fail(system_error(ENOENT, path, "stat"));
    return memory_info(*node);
  }

  Result<std::vector<DirEntry>> list(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const MemoryNodePtr node, directory(path, "list"));
    std::vector<DirEntry> entries;
    for (const auto& [name, child] : node->entries) entries.push_back({.name = name, .kind = child->kind});
    return entries;
  }

  Result<> make_dir(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    const auto [parent, name] = state_->place(path);
    if (!parent) return fail(system_error(ENOENT, path, "mkdir"));
    if (parent->entries.count(name) != 0) return fail(system_error(EEXIST, path, "mkdir"));
    state_->change({{parent, name, state_->make(Kind::directory)}});
    return {};
  }

  Result<> sync_dir(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const MemoryNodePtr node, directory(path, "fsync directory"));
    state_->sync_names(node);
    return {};
  }

  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    const std::lock_guard held(state_->mutex);
    const auto [from_parent, from_name] = state_->place(from);
    const auto [to_parent, to_name] = state_->place(to);
    const MemoryNodePtr source = state_->find(from);
    const MemoryNodePtr target = state_->find(to);
    if (!source || !from_parent || !to_parent) return fail(system_error(ENOENT, from, "rename"));
    if (mode == RenameMode::exchange) {
      if (!state_->options.exchange) {
        return fail({.code = Errc::unsupported, .message = to + ": rename: Invalid argument", .file = to});
      }
      if (!target) return fail(system_error(ENOENT, to, "rename"));
      state_->change({{from_parent, from_name, target}, {to_parent, to_name, source}});
      return {};
    }
    if (target && (mode == RenameMode::no_replace || !target->entries.empty())) {
      return fail(system_error(EEXIST, to, "rename"));
    }
    if (target && target->kind != source->kind) {
      return fail(system_error(target->kind == Kind::directory ? EISDIR : ENOTDIR, to, "rename"));
    }
    if (mode == RenameMode::no_replace && source->kind == Kind::file && state_->options.half_rename) {
      state_->change({{to_parent, to_name, source}});
      return fail(system_error(EIO, from, "unlink"));
    }
    state_->change({{from_parent, from_name, nullptr}, {to_parent, to_name, source}});
    return {};
  }

  Result<> unlink(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    const MemoryNodePtr node = state_->find(path);
    if (!node) return fail(system_error(ENOENT, path, "unlink"));
    if (node->kind == Kind::directory) return fail(system_error(EISDIR, path, "unlink"));
    const auto [parent, name] = state_->place(path);
    state_->change({{parent, name, nullptr}});
    return {};
  }

  Result<> link(const std::string& from, const std::string& to) override {
    const std::lock_guard held(state_->mutex);
    const MemoryNodePtr node = state_->find(from);
    const auto [parent, name] = state_->place(to);
    if (!node || !parent) return fail(system_error(ENOENT, to, "link"));
    if (node->kind == Kind::directory) return fail(system_error(EPERM, to, "link"));
    if (parent->entries.count(name) != 0) return fail(system_error(EEXIST, to, "link"));
    state_->change({{parent, name, node}});
    return {};
  }

  Result<> remove_dir(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const MemoryNodePtr node, directory(path, "rmdir"));
    if (!node->entries.empty()) return fail(system_error(ENOTEMPTY, path, "rmdir"));
    const auto [parent, name] = state_->place(path);
    if (!parent) return fail(system_error(EBUSY, path, "rmdir"));
    state_->change({{parent, name, nullptr}});
    return {};
  }

  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    const std::lock_guard held(state_->mutex);
    const MemoryNodePtr node = state_->find(path);
    if (!node) return fail(system_error(ENOENT, path, "lock"));
    if (!state_->options.locks) {
      return fail({.code = Errc::unsupported, .message = path + ": lock: No locks available", .file = path});
    }
    const bool exclusive = mode == LockMode::exclusive;
    if (node->exclusive_lock || (exclusive && node->shared_locks > 0)) {
      return fail({.code = Errc::locked, .message = path + ": lock: held by another process", .file = path});
    }
    if (exclusive) {
      node->exclusive_lock = true;
    } else {
      ++node->shared_locks;
    }
    return std::unique_ptr<HeldLock>(std::make_unique<MemoryLock>(state_, node, exclusive));
  }

  LockScope lock_scope(const std::string& path) override { return {.path = path}; }
  Result<std::uint64_t> free_bytes(const std::string& path) override {
    const std::lock_guard held(state_->mutex);
    if (!state_->find(path)) return fail(system_error(ENOENT, path, "statvfs"));
    return state_->free_bytes();
  }

  bool recycles(const std::string& directory) override {
    const std::lock_guard held(state_->mutex);
    return state_->options.recycles && state_->find(directory);
  }

  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    const std::lock_guard held(state_->mutex);
    MemoryNodePtr node = state_->find(path);
    if (options.mode == OpenOptions::Mode::write_new) {
      const auto [parent, name] = state_->place(path);
      if (!parent) return fail(system_error(ENOENT, path, "create"));
      if (node) return fail(system_error(EEXIST, path, "create"));
      node = state_->make(Kind::file);
      state_->change({{parent, name, node}});
    }
    if (!node) return fail(system_error(ENOENT, path, "open"));
    if (node->kind != Kind::file) {
      return fail({.code = Errc::io, .message = path + ": open: not a regular file", .file = path});
    }
    const bool recycled = options.mode == OpenOptions::Mode::write_recycled;
    if (recycled && (!state_->options.recycles || node->unlike_new || node->opens != 0 || state_->names_of(*node) != 1))
      return fail({.code = Errc::locked, .message = path + ": recycle: not ours alone", .file = path});
    ++node->opens;
    files_.push_back({.node = std::move(node),
                      .path = path,
                      .direct = options.direct && state_->options.direct,
                      .writable = options.mode != OpenOptions::Mode::read,
                      .boot = state_->boots});
    return FileHandle{static_cast<int>(files_.size() - 1)};
  }

  bool is_direct(FileHandle file) const override {
    const OpenFile* found = find(file);
    return found != nullptr && found->direct;
  }

  Result<FileInfo> info(FileHandle file) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, usable(file, "info"));
    return memory_info(*found->node);
  }

  Result<> allocate(FileHandle file, std::uint64_t bytes) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, idle(file, "allocate"));
    return grow(*found, bytes, "allocate");
  }

  Result<> truncate(FileHandle file, std::uint64_t bytes) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, idle(file, "truncate"));
    CKPT_CHECK(grow(*found, bytes, "truncate"));
    found->node->bytes.resize(static_cast<std::size_t>(bytes));
    found->node->mtime_ns = ++state_->clock_ns;
    return {};
  }

  Result<> sync(FileHandle file) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, idle(file, "fdatasync"));
    found->node->durable_bytes = found->node->bytes;
    return {};
  }

  Result<> close(FileHandle file) override {
    const std::lock_guard held(state_->mutex);
    if (find(file) != nullptr && find(file)->boot != state_->boots) {
      files_[static_cast<std::size_t>(file.value)].node.reset();
    }
    CKPT_TRY(const OpenFile* found, idle(file, "close"));
    drop(*found);
    files_[static_cast<std::size_t>(file.value)].node.reset();
    return {};
  }

  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, usable(file, "read"));
    if (found->direct) return fail(Errc::internal, found->path + ": read: a direct file");
    const std::size_t got = copy_out(*found, offset, data);
    if (got == data.size()) return {};
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: read at {}: the file ends at {}", found->path, offset, offset + got),
                 .file = found->path,
                 .offset = offset + got});
  }

  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, usable(file, "write"));
    if (found->direct) return fail(Errc::internal, found->path + ": write: a direct file");
    return copy_in(*found, offset, data);
  }

  std::size_t queue_depth() const override { return queue_depth_; }
  const Host& host() const override { return host_; }

  Result<> submit(const Request& request) override {
    const std::lock_guard held(state_->mutex);
    CKPT_TRY(const OpenFile* found, usable(request.file, "submit"));
    if (pending_.size() == queue_depth_) return fail(Errc::internal, found->path + ": submit: the queue is full");
    if (request.bytes == 0 || request.data == nullptr) {
      return fail(Errc::internal, found->path + ": submit: a request without bytes");
    }
    if (request.offset > std::numeric_limits<std::int64_t>::max() - request.bytes) {
      return fail(system_error(EFBIG, found->path, "submit", request.offset));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(request.data);
    if (found->direct && (request.offset | request.bytes | address) % kAlignment != 0) {
      return fail(Errc::internal, found->path + ": submit: not aligned for direct I/O");
    }
    pending_.push_back(request);
    return {};
  }

  Result<std::size_t> reap(std::span<Completion> out, bool wait) override {
    const std::lock_guard held(state_->mutex);
    const std::size_t most = std::min(out.size(), pending_.size());
    if (most == 0) return 0;
    // Any number of them, in any order: the order, which is not guaranteed, varies with the seed.
    const std::size_t count = std::uniform_int_distribution<std::size_t>(wait ? 1 : 0, most)(random_);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t chosen = std::uniform_int_distribution<std::size_t>(0, pending_.size() - 1)(random_);
      const Request request = pending_[chosen];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(chosen));
      out[i] = {.tag = request.tag, .bytes = carry_out(request)};
    }
    return count;
  }

 private:
  struct OpenFile {
    MemoryNodePtr node;  // null once closed
    std::string path;
    bool direct = false;
    bool writable = false;
    std::uint64_t boot = 0;
  };

  void drop(const OpenFile& file) const {
    if (file.node && file.boot == state_->boots) --file.node->opens;
  }
  const OpenFile* find(FileHandle file) const {
    const auto index = static_cast<std::size_t>(file.value);
    return file.value >= 0 && index < files_.size() && files_[index].node ? &files_[index] : nullptr;
  }
  Result<const OpenFile*> usable(FileHandle file, const char* operation) const {
    const OpenFile* found = find(file);
    if (found == nullptr) return fail(Errc::internal, fmt::format("{}: no open file {}", operation, file.value));
    if (found->boot != state_->boots) return fail(system_error(ENODEV, found->path, operation));
    return found;
  }
  Result<const OpenFile*> idle(FileHandle file, const char* operation) const {
    const bool busy = std::any_of(pending_.begin(), pending_.end(),
                                  [&](const Request& request) { return request.file.value == file.value; });
    if (busy) return fail(Errc::internal, fmt::format("{}: requests are in flight", operation));
    return usable(file, operation);
  }
  Result<MemoryNodePtr> directory(const std::string& path, const char* operation) const {
    MemoryNodePtr node = state_->find(path);
    if (!node) return fail(system_error(ENOENT, path, operation));
    if (node->kind != Kind::directory) return fail(system_error(ENOTDIR, path, operation));
    return node;
  }

  Result<> grow(const OpenFile& file, std::uint64_t bytes, const char* operation) {
    std::string& content = file.node->bytes;
    if (bytes <= content.size()) return {};
    if (bytes - content.size() > state_->free_bytes()) return fail(system_error(ENOSPC, file.path, operation));
    content.resize(static_cast<std::size_t>(bytes));
    file.node->mtime_ns = ++state_->clock_ns;
    return {};
  }
  static std::size_t copy_out(const OpenFile& file, std::uint64_t offset, std::span<std::byte> data) {
    const std::string& content = file.node->bytes;
    if (offset >= content.size()) return 0;
    const std::size_t bytes = std::min<std::size_t>(data.size(), content.size() - offset);
    std::copy_n(reinterpret_cast<const std::byte*>(content.data()) + offset, bytes, data.data());
    return bytes;
  }
  Result<> copy_in(const OpenFile& file, std::uint64_t offset, std::span<const std::byte> data) {
    if (!file.writable) return fail(system_error(EBADF, file.path, "write", offset));
    CKPT_CHECK(grow(file, offset + data.size(), "write"));
    std::copy(data.begin(), data.end(), reinterpret_cast<std::byte*>(file.node->bytes.data()) + offset);
    file.node->mtime_ns = ++state_->clock_ns;
    return {};
  }
  Result<std::size_t> carry_out(const Request& request) {
    CKPT_TRY(const OpenFile* found, usable(request.file, "request"));
    const std::span data(request.data, request.bytes);
    if (request.op == Request::Op::read) return copy_out(*found, request.offset, data);
    CKPT_CHECK(copy_in(*found, request.offset, data));
    return request.bytes;
  }

  std::shared_ptr<State> state_;
  ThisHost host_;
  std::size_t queue_depth_;
  std::mt19937_64 random_;
  std::vector<OpenFile> files_;
  std::vector<Request> pending_;
};

}  // namespace

std::unique_ptr<Io> MemoryDisk::io(std::size_t queue_depth) const {
  return std::make_unique<MemoryIo>(state_, queue_depth);
}

}  // namespace ckpt
