#include "support/network_io.hpp"

#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/io/system_error.hpp"
#include "format/hash.hpp"

namespace ckpt {

struct NetworkDisk::State {
  struct Locks {
    unsigned shared = 0;
    bool exclusive = false;
  };
  struct OneHost {
    std::uint64_t changes = 0;                                  // its own: an answer from before one is not kept
    std::map<std::uint64_t, Locks> locks;                       // by inode
    std::map<std::string, std::vector<DirEntry>> listings;      // what it remembers
    std::map<std::string, std::optional<FileInfo>> attributes;  // by path; nothing: it does not exist
    std::set<std::uint64_t> dead;                               // pids
  };

  const std::function<std::unique_ptr<Io>()> server;
  const Options options;
  std::mutex mutex;
  // All below guarded by mutex.
  std::map<std::string, OneHost> hosts;
  std::map<std::uint64_t, std::string> removed;  // inode: by which host
  std::chrono::nanoseconds now{std::chrono::hours(1)};
  std::uint64_t renames = 0;
  std::uint64_t stale = 0;

  State(std::function<std::unique_ptr<Io>()> ios, Options chosen) : server(std::move(ios)), options(chosen) {}
};

namespace {

using State = NetworkDisk::State;

class NetworkHost final : public Host {
 public:
  NetworkHost(std::shared_ptr<State> state, std::string name, std::uint64_t pid)
      : state_(std::move(state)), name_(std::move(name)), pid_(pid) {}

  ProcessId self() const override {
    return {.host = name_, .boot = boot(), .pid_namespace = 1, .pid = pid_, .started = 7};
  }
  std::optional<bool> is_running(const ProcessId& process) const override {
    if (process.boot != boot()) return std::nullopt;
    const std::lock_guard held(state_->mutex);
    return state_->hosts[name_].dead.count(process.pid) == 0;
  }
  std::chrono::nanoseconds monotonic() const override {
    const std::lock_guard held(state_->mutex);
    // Clocks of two hosts have nothing to do with each other.
    return state_->now + std::chrono::hours(hash64(name_) % 1000);
  }
  std::string clock_id() const override { return boot(); }

 private:
  std::string boot() const { return hash128(name_).hex(); }

  std::shared_ptr<State> state_;
  std::string name_;
  std::uint64_t pid_;
};

class NetworkLock final : public HeldLock {
 public:
  NetworkLock(std::shared_ptr<State> state, std::string host, std::uint64_t inode, bool exclusive)
      : state_(std::move(state)), host_(std::move(host)), inode_(inode), exclusive_(exclusive) {}
  ~NetworkLock() override {
    const std::lock_guard held(state_->mutex);
    State::Locks& locks = state_->hosts[host_].locks[inode_];
    if (exclusive_) {
      locks.exclusive = false;
    } else {
      --locks.shared;
    }
  }
  NetworkLock(const NetworkLock&) = delete;
  NetworkLock& operator=(const NetworkLock&) = delete;

 private:
  std::shared_ptr<State> state_;
  std::string host_;
  std::uint64_t inode_;
  bool exclusive_;
};

class NetworkIo final : public Io {
 public:
  NetworkIo(std::shared_ptr<State> state, std::string host, std::uint64_t pid)
      : state_(std::move(state)),
        name_(std::move(host)),
        pid_(pid),
        host_(state_, name_, pid),
        inner_(state_->server()) {}

  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<Io>> new_instance() const override {
    return std::unique_ptr<Io>(std::make_unique<NetworkIo>(state_, name_, pid_));
  }

  Result<FileInfo> stat(const std::string& path) override {
    CKPT_CHECK(alive(path));
    CKPT_CHECK(not_remembered_absent(path, "stat"));
    const std::string key = join_path(path, "");
    if (state_->options.stale_attributes) {
      const std::lock_guard held(state_->mutex);
      const auto& attributes = state_->hosts[name_].attributes;
      const auto known = attributes.find(key);
      if (known != attributes.end() && !known->second) return fail(system_error(ENOENT, path, "stat"));
      if (known != attributes.end()) return *known->second;
    }
    const std::uint64_t before = changes();
    auto info = inner_->stat(path);
    if (info) remember(key, *info, before);
    if (!info && info.error().code == Errc::not_found) remember(key, std::nullopt, before);
    return info;
  }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    CKPT_CHECK(alive(path));
    const std::string key = join_path(path, "");
    const std::uint64_t before = changes();
    if (state_->options.stale_listings) {
      const std::lock_guard held(state_->mutex);
      const auto& listings = state_->hosts[name_].listings;
      if (const auto known = listings.find(key); known != listings.end()) return known->second;
    }
    CKPT_TRY(auto entries, inner_->list(path));
    const std::lock_guard held(state_->mutex);
    State::OneHost& host = state_->hosts[name_];
    if (state_->options.stale_listings && host.changes == before) host.listings.insert_or_assign(key, entries);
    return entries;
  }
  Result<> make_dir(const std::string& path) override {
    CKPT_CHECK(alive(path));
    auto made = inner_->make_dir(path);
    changed(path);
    return made;
  }
  Result<> sync_dir(const std::string& path) override {
    CKPT_CHECK(alive(path));
    return inner_->sync_dir(path);
  }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    CKPT_CHECK(alive(to));
    if (mode == RenameMode::exchange)
      return fail({.code = Errc::unsupported, .message = to + ": rename: Invalid argument", .file = to});
    const auto replaced = inner_->stat(to);
    auto renamed = inner_->rename(from, to, mode);
    changed(from);
    changed(to);
    if (!renamed) return renamed;
    const std::lock_guard held(state_->mutex);
    if (replaced) state_->removed[replaced->inode] = name_;
    const std::uint64_t one_of = state_->options.lost_answers;
    if (one_of != 0 && ++state_->renames % one_of == 0) return fail(system_error(ENOENT, from, "rename"));
    return {};
  }
  Result<> unlink(const std::string& path) override {
    CKPT_CHECK(alive(path));
    const auto info = inner_->stat(path);
    auto gone = inner_->unlink(path);
    changed(path);
    if (!gone) return gone;
    const std::lock_guard held(state_->mutex);
    if (info) state_->removed[info->inode] = name_;
    return {};
  }
  Result<> remove_dir(const std::string& path) override {
    CKPT_CHECK(alive(path));
    auto gone = inner_->remove_dir(path);
    changed(path);
    return gone;
  }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    CKPT_CHECK(alive(path));
    CKPT_CHECK(not_remembered_absent(path, "lock"));
    CKPT_TRY(const FileInfo info, inner_->stat(path));  // it is opened, so the server is asked
    if (!state_->options.locks)
      return fail({.code = Errc::unsupported, .message = path + ": lock: No locks available", .file = path});
    const bool exclusive = mode == LockMode::exclusive;
    const std::lock_guard held(state_->mutex);
    State::Locks& locks = state_->hosts[name_].locks[info.inode];
    if (locks.exclusive || (exclusive && locks.shared > 0))
      return fail({.code = Errc::locked, .message = path + ": lock: held by another process", .file = path});
    if (exclusive) {
      locks.exclusive = true;
    } else {
      ++locks.shared;
    }
    return std::unique_ptr<HeldLock>(std::make_unique<NetworkLock>(state_, name_, info.inode, exclusive));
  }
  LockScope lock_scope(const std::string& path) override { return {.reach = state_->options.reach, .path = path}; }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return inner_->free_bytes(path); }
  bool recycles(const std::string& /*directory*/) override { return false; }

  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    CKPT_CHECK(alive(path));
    const bool makes = options.mode == OpenOptions::Mode::write_new;
    if (!makes) CKPT_CHECK(not_remembered_absent(path, "open"));
    options.direct = false;
    const std::uint64_t before = changes();
    auto opened = inner_->open(path, options);
    if (makes) changed(path);
    CKPT_TRY(const FileHandle file, std::move(opened));
    files_[file.value] = {.path = path};
    const auto info = inner_->info(file);
    if (!info) return file;
    files_[file.value].inode = info->inode;
    remember(join_path(path, ""), *info, before);  // of a file that is opened the server is asked
    const std::lock_guard held(state_->mutex);
    state_->removed.erase(info->inode);  // its number was given again
    return file;
  }
  bool is_direct(FileHandle file) const override { return std::as_const(*inner_).is_direct(file); }
  Result<FileInfo> info(FileHandle file) override {
    CKPT_CHECK(reachable(file, "fstat"));
    return inner_->info(file);
  }
  Result<> allocate(FileHandle file, std::uint64_t bytes) override {
    CKPT_CHECK(reachable(file, "allocate"));
    forget_attributes(file);
    return inner_->allocate(file, bytes);
  }
  Result<> truncate(FileHandle file, std::uint64_t bytes) override {
    CKPT_CHECK(reachable(file, "truncate"));
    forget_attributes(file);
    return inner_->truncate(file, bytes);
  }
  Result<> sync(FileHandle file) override {
    CKPT_CHECK(reachable(file, "fdatasync"));
    return inner_->sync(file);
  }
  Result<> close(FileHandle file) override {
    forget_attributes(file);
    files_.erase(file.value);
    return inner_->close(file);
  }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    CKPT_CHECK(reachable(file, "read", offset));
    return inner_->read_at(file, offset, data);
  }
  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override {
    CKPT_CHECK(reachable(file, "write", offset));
    forget_attributes(file);
    return inner_->write_at(file, offset, data);
  }

  std::size_t queue_depth() const override { return std::as_const(*inner_).queue_depth(); }
  Result<> submit(const Request& request) override {
    const bool reads = request.op == Request::Op::read;
    auto there = reachable(request.file, reads ? "read" : "write", request.offset);
    if (there) return inner_->submit(request);
    refused_.push_back({.tag = request.tag, .bytes = fail(std::move(there).error())});
    return {};
  }
  Result<std::size_t> reap(std::span<Completion> out, bool wait) override {
    std::size_t count = 0;
    while (count < out.size() && !refused_.empty()) {
      out[count++] = std::move(refused_.back());
      refused_.pop_back();
    }
    if (count == out.size()) return count;
    CKPT_TRY(const std::size_t others, inner_->reap(out.subspan(count), wait && count == 0));
    return count + others;
  }
  const Host& host() const override { return host_; }

 private:
  /// A killed process does nothing more.
  Result<> alive(const std::string& path) const {
    const std::lock_guard held(state_->mutex);
    if (state_->hosts[name_].dead.count(pid_) == 0) return {};
    return fail({.code = Errc::io, .message = path + ": the process was killed", .file = path});
  }
  Result<> reachable(FileHandle file, const char* operation, std::optional<std::uint64_t> offset = {}) const {
    CKPT_CHECK(alive("file"));
    const auto opened = files_.find(file.value);
    if (opened == files_.end()) return {};
    const std::lock_guard held(state_->mutex);
    const auto gone = state_->removed.find(opened->second.inode);
    if (gone == state_->removed.end() || gone->second == name_) return {};
    ++state_->stale;
    return fail(system_error(ESTALE, opened->second.path, operation, offset));
  }
  /// If this host has already failed to find a name, or one above it, it does not ask the server again.
  Result<> not_remembered_absent(const std::string& path, const char* operation) const {
    if (!state_->options.stale_attributes) return {};
    const std::lock_guard held(state_->mutex);
    const auto& attributes = state_->hosts[name_].attributes;
    for (std::string at = join_path(path, "");; at = parent_path(at)) {
      const auto known = attributes.find(at);
      if (known != attributes.end() && !known->second) return fail(system_error(ENOENT, path, operation));
      if (parent_path(at) == at) return {};
    }
  }
  std::uint64_t changes() const {
    const std::lock_guard held(state_->mutex);
    return state_->hosts[name_].changes;
  }
  void remember(const std::string& path, std::optional<FileInfo> info, std::uint64_t before) const {
    if (!state_->options.stale_attributes) return;
    const std::lock_guard held(state_->mutex);
    State::OneHost& host = state_->hosts[name_];
    if (host.changes == before) host.attributes.insert_or_assign(path, info);
  }
  void forget_attributes(FileHandle file) const {
    const auto opened = files_.find(file.value);
    if (opened == files_.end()) return;
    const std::lock_guard held(state_->mutex);
    State::OneHost& host = state_->hosts[name_];
    ++host.changes;
    host.attributes.erase(join_path(opened->second.path, ""));
  }
  /// The host changed a name itself: it drops its memory of that name, everything below, and the parent directory.
  void changed(const std::string& path) const {
    const std::string name = join_path(path, "");
    const std::lock_guard held(state_->mutex);
    State::OneHost& host = state_->hosts[name_];
    ++host.changes;
    const auto is_below = [&](const auto& known) { return known.first.starts_with(name + "/"); };
    std::erase_if(host.listings, is_below);
    std::erase_if(host.attributes, is_below);
    host.listings.erase(name);
    host.listings.erase(parent_path(name));
    host.attributes.erase(name);
    host.attributes.erase(parent_path(name));
  }

  std::shared_ptr<State> state_;
  std::string name_;
  std::uint64_t pid_;
  NetworkHost host_;
  std::unique_ptr<Io> inner_;
  struct Opened {
    std::string path{};
    std::uint64_t inode = 0;
  };
  std::map<int, Opened> files_;      // by handle
  std::vector<Completion> refused_;  // of requests for files that another host removed
};

}  // namespace

NetworkDisk::NetworkDisk(std::function<std::unique_ptr<Io>()> server, Options options)
    : state_(std::make_shared<State>(std::move(server), options)) {}
NetworkDisk::NetworkDisk(const MemoryDisk& disk, Options options)
    : NetworkDisk([&disk] { return disk.io(); }, options) {}
NetworkDisk::~NetworkDisk() = default;

std::unique_ptr<Io> NetworkDisk::io(const std::string& host, std::uint64_t pid) {
  return std::make_unique<NetworkIo>(state_, host, pid);
}

void NetworkDisk::kill(const std::string& host, std::uint64_t pid) {
  const std::lock_guard held(state_->mutex);
  state_->hosts[host].dead.insert(pid);
}

void NetworkDisk::wait(std::chrono::nanoseconds time) {
  const std::lock_guard held(state_->mutex);
  state_->now += time;
}

void NetworkDisk::forget() {
  const std::lock_guard held(state_->mutex);
  for (auto& [name, host] : state_->hosts) {
    host.listings.clear();
    host.attributes.clear();
  }
}

std::uint64_t NetworkDisk::stale_count() const {
  const std::lock_guard held(state_->mutex);
  return state_->stale;
}

}  // namespace ckpt
