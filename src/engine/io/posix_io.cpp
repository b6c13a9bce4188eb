#include "engine/io/posix_io.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include "engine/io/recyclable.hpp"
#include "engine/io/system_error.hpp"

namespace ckpt {
namespace {

FileInfo::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileInfo::Kind::file;
  return S_ISDIR(mode) ? FileInfo::Kind::directory : FileInfo::Kind::other;
}

/// Nanoseconds since 1970; times outside of the range (ext4 goes to 2446) become the nearest representable one.
std::int64_t nanoseconds(const timespec& time) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  std::int64_t out = 0;
  const bool over = __builtin_mul_overflow(std::int64_t{time.tv_sec}, std::int64_t{1'000'000'000}, &out) ||
                    __builtin_add_overflow(out, std::int64_t{time.tv_nsec}, &out);
  if (!over) return out;
  return time.tv_sec < 0 ? std::numeric_limits<std::int64_t>::min() : most;
}

FileInfo to_info(const struct stat& status) {
  return {.kind = kind_of(status.st_mode),
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .mtime_ns = nanoseconds(status.st_mtim),
          .ctime_ns = nanoseconds(status.st_ctim),
          .device = status.st_dev,
          .inode = status.st_ino,
          .permissions = status.st_mode & 0777U,
          .links = status.st_nlink,
          .owner = status.st_uid,
          .group = status.st_gid};
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Offsets are signed in the system's interface.
Result<off_t> to_offset(std::uint64_t value, const std::string& path, const char* operation) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(system_error(EFBIG, path, operation));
  }
  return static_cast<off_t>(value);
}

class Flock final : public HeldLock {
 public:
  explicit Flock(UniqueFd fd) : fd_(std::move(fd)) {}
  ~Flock() override { ::flock(fd_.get(), LOCK_UN); }
  Flock(const Flock&) = delete;
  Flock& operator=(const Flock&) = delete;

 private:
  UniqueFd fd_;
};

/// Of a directory, by its path or by its descriptor and "". Linux 5.8 and later tell; older ones: false.
bool is_mount_point(int fd, const char* path) {
#ifdef STATX_ATTR_MOUNT_ROOT
  struct statx status {};
  const int flags = *path == '\0' ? AT_EMPTY_PATH : 0;
  return ::statx(fd, path, flags, STATX_TYPE, &status) == 0 && (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
#else
  static_cast<void>(fd), static_cast<void>(path);
  return false;
#endif
}

/// True where direct transfers at multiples of kAlignment are known to be refused.
bool needs_other_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0) {
    const auto refused = [](std::uint32_t alignment) { return alignment == 0 || kAlignment % alignment != 0; };
    return refused(status.stx_dio_offset_align) || refused(status.stx_dio_mem_align);
  }
#else
  static_cast<void>(fd);
#endif
  return false;
}

}  // namespace

Result<> rename_without_flags(const ChangePlace& source, const ChangePlace& target, const std::string& from,
                              const std::string& to) {
  const char* const source_name = source.name.c_str();
  const char* const target_name = target.name.c_str();
  struct stat status {};
  if (::fstatat(source.directory, source_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail(system_error(errno, from, "rename"));
  if (!S_ISDIR(status.st_mode)) {
    if (::linkat(source.directory, source_name, target.directory, target_name, 0) != 0)
      return fail(system_error(errno, to, "link"));
    if (::unlinkat(source.directory, source_name, 0) != 0) return fail(system_error(errno, from, "unlink"));
    return {};
  }
  struct stat other {};
  if (::fstatat(target.directory, target_name, &other, AT_SYMLINK_NOFOLLOW) == 0)
    return fail(system_error(EEXIST, to, "rename"));
  if (errno != ENOENT) return fail(system_error(errno, to, "rename"));
  if (::renameat(source.directory, source_name, target.directory, target_name) != 0)
    return fail(system_error(errno, to, "rename"));
  return {};
}

// --- names -----------------------------------------------------------------------------------------------------

Result<FileInfo> PosixIo::stat(const std::string& path) {
  struct stat status {};
  int reason = 0;
  bool mounted = false;
  if (held_.holds_reads(path)) {
    CKPT_TRY(const auto opened, held_.open_to_read(path, O_PATH, "stat"));
    reason = opened.fd && ::fstat(opened.fd.get(), &status) != 0 ? errno : opened.reason;
    mounted = reason == 0 && S_ISDIR(status.st_mode) && is_mount_point(opened.fd.get(), "");
  } else if (::stat(path.c_str(), &status) != 0) {
    reason = errno;
  } else {
    mounted = S_ISDIR(status.st_mode) && is_mount_point(AT_FDCWD, path.c_str());
  }
  if (reason != 0) {
    // Nothing exists below a file: the same error for callers that look up a name.
    Error error = system_error(reason, path, "stat");
    if (reason == ENOTDIR) error.code = Errc::not_found;
    return fail(std::move(error));
  }
  FileInfo info = to_info(status);
  info.is_mount_point = mounted;
  return info;
}

Result<std::vector<DirEntry>> PosixIo::list(const std::string& path) {
  struct Closer {
    void operator()(DIR* directory) const { ::closedir(directory); }
  };
  CKPT_TRY(auto opened, held_.open_to_read(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, "list"));
  if (!opened.fd) return fail(system_error(opened.reason, path, "list"));
  const std::unique_ptr<DIR, Closer> directory(::fdopendir(opened.fd.get()));
  if (!directory) return fail(system_error(errno, path, "list"));
  static_cast<void>(opened.fd.release());
  std::vector<DirEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) {
      if (errno != 0) return fail(system_error(errno, path, "list"));
      break;
    }
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    FileInfo::Kind kind = FileInfo::Kind::other;
    bool is_link = entry->d_type == DT_LNK;
    if (entry->d_type == DT_REG) {
      kind = FileInfo::Kind::file;
    } else if (entry->d_type == DT_DIR) {
      kind = FileInfo::Kind::directory;
    } else if (is_link || entry->d_type == DT_UNKNOWN) {
      struct stat status {};
      const int parent = ::dirfd(directory.get());
      if (!is_link && ::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
        is_link = S_ISLNK(status.st_mode);
      if (::fstatat(parent, name.c_str(), &status, 0) == 0) kind = kind_of(status.st_mode);
    }
    entries.push_back({.name = std::move(name), .kind = kind, .is_link = is_link});
  }
  std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

Result<> PosixIo::make_dir(const std::string& path) {
  constexpr mode_t kMode = 0777;
  CKPT_TRY(const ChangePlace at, held_.place(path, "mkdir"));
  if (::mkdirat(at.directory, at.name.c_str(), at.rights.creation_mode(kMode)) != 0)
    return fail(system_error(errno, path, "mkdir"));
  if (!at.rights.store) return {};
  const UniqueFd made(::openat(at.directory, at.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (made) at.rights.apply(made.get(), kMode);
  return {};
}

Result<> PosixIo::sync_dir(const std::string& path) {
  constexpr const char* kOperation = "open directory";
  CKPT_TRY(const auto opened, held_.open(path, O_RDONLY | O_DIRECTORY, kOperation));
  if (!opened.fd) return fail(system_error(opened.reason, path, kOperation));
  // EINVAL: the file system has no such call for directories (some FUSE ones); there is nothing else to ask it for.
  if (::fsync(opened.fd.get()) != 0 && errno != EINVAL) return fail(system_error(errno, path, "fsync directory"));
  return {};
}

Result<> PosixIo::rename(const std::string& from, const std::string& to, RenameMode mode) {
  const unsigned flags = mode == RenameMode::no_replace ? unsigned{RENAME_NOREPLACE}
                         : mode == RenameMode::exchange ? unsigned{RENAME_EXCHANGE}
                                                        : 0U;
  CKPT_TRY(const ChangePlace source, held_.place(from, "rename"));
  CKPT_TRY(const ChangePlace target, held_.place(to, "rename"));
  const char* const source_name = source.name.c_str();
  const char* const target_name = target.name.c_str();
  const int failed = flags == 0 ? ::renameat(source.directory, source_name, target.directory, target_name)
                                : ::renameat2(source.directory, source_name, target.directory, target_name, flags);
  if (failed == 0) return {};
  const int reason = errno;
  const bool flags_refused = flags != 0 && (reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP);
  if (flags_refused && mode == RenameMode::no_replace) return rename_without_flags(source, target, from, to);
  Error error = system_error(reason, to, fmt::format("rename from {}", base_name(from)));
  if (flags_refused) error.code = Errc::unsupported;
  if (reason == ENOTEMPTY) error.code = Errc::target_exists;
  return fail(std::move(error));
}

Result<> PosixIo::link(const std::string& from, const std::string& to) {
  CKPT_TRY(const ChangePlace target, held_.place(to, "link"));
  if (::linkat(AT_FDCWD, from.c_str(), target.directory, target.name.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
  const int reason = errno;
  Error error = system_error(reason, from, "link");
  const bool cannot =
      reason == EXDEV || reason == EPERM || reason == EMLINK || reason == EOPNOTSUPP || reason == ENOSYS;
  if (cannot) error.code = Errc::unsupported;
  return fail(std::move(error));
}

Result<> PosixIo::unlink(const std::string& path) {
  CKPT_TRY(const ChangePlace at, held_.place(path, "unlink"));
  if (::unlinkat(at.directory, at.name.c_str(), 0) != 0) return fail(system_error(errno, path, "unlink"));
  return {};
}

Result<> PosixIo::remove_dir(const std::string& path) {
  CKPT_TRY(const ChangePlace at, held_.place(path, "rmdir"));
  if (::unlinkat(at.directory, at.name.c_str(), AT_REMOVEDIR) != 0) return fail(system_error(errno, path, "rmdir"));
  return {};
}

Result<std::unique_ptr<HeldLock>> PosixIo::lock(const std::string& path, LockMode mode) {
  // O_NONBLOCK: a pipe under this name must not make us wait for its writer.
  CKPT_TRY(auto opened, held_.open_to_read(path, O_RDONLY | O_NONBLOCK, "lock"));
  UniqueFd fd = std::move(opened.fd);
  if (!fd) return fail(system_error(opened.reason, path, "lock"));
  int failed = 0;
  do {
    failed = ::flock(fd.get(), (mode == LockMode::shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) {
    const int reason = errno;
    Error error = system_error(reason, path, "lock");
    if (reason == EWOULDBLOCK) {
      error.code = Errc::locked;
      error.message = path + ": held by another process";
    } else {
      error.code = Errc::unsupported;  // EBADF, ENOLCK, EINVAL, ENOSYS: no such locks on this file system
    }
    return fail(std::move(error));
  }
  // Between open and flock the holder may have removed or replaced the file; a lock on the old one protects nothing.
  struct stat locked {};
  struct stat named {};
  if (::fstat(fd.get(), &locked) != 0) return fail(system_error(errno, path, "lock"));
  if (::stat(path.c_str(), &named) != 0) return fail(system_error(errno, path, "lock"));
  if (!same_file(locked, named)) {
    return fail({.code = Errc::locked, .message = path + ": replaced by another process", .file = path});
  }
  return std::unique_ptr<HeldLock>(std::make_unique<Flock>(std::move(fd)));
}

Result<std::uint64_t> PosixIo::free_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return fail(system_error(errno, path, "statvfs"));
  constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
  if (status.f_blocks == 0) return kUnlimited;  // tmpfs without a limit, and file systems that do not report it
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(status.f_bavail, status.f_frsize, &bytes) ? kUnlimited : bytes;
}

bool PosixIo::recycles(const std::string& directory) {
  return recycles_files(directory);
}

// --- files -----------------------------------------------------------------------------------------------------

PosixIo::OpenFile* PosixIo::find(FileHandle file) {
  return const_cast<OpenFile*>(std::as_const(*this).find(file));
}

const PosixIo::OpenFile* PosixIo::find(FileHandle file) const {
  const auto index = static_cast<std::size_t>(file.value);
  return file.value >= 0 && index < files_.size() && files_[index].fd ? &files_[index] : nullptr;
}

Result<PosixIo::OpenFile*> PosixIo::idle(FileHandle file, const char* operation) {
  OpenFile* found = find(file);
  if (found == nullptr) return fail(Errc::internal, fmt::format("{}: no open file {}", operation, file.value));
  if (found->in_flight != 0) {
    return fail(Errc::internal, fmt::format("{}: {}: requests are in flight", *found->path, operation));
  }
  return found;
}

Result<FileHandle> PosixIo::open(const std::string& path, OpenOptions options) {
  // O_NONBLOCK: opening a pipe that was planted in a checkpoint must not wait. Taken off again below: on regular
  // files it has no meaning to read and write, but would let io_uring give up with EAGAIN.
  int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  switch (options.mode) {
    case OpenOptions::Mode::read:
      flags |= O_RDONLY;
      break;
    case OpenOptions::Mode::write_new:
      flags |= O_RDWR | O_CREAT | O_EXCL;
      break;
    case OpenOptions::Mode::write_existing:
      flags |= O_RDWR;
      break;
    case OpenOptions::Mode::write_recycled:
      flags |= O_RDWR | O_NOFOLLOW;
      break;
  }
  const bool makes = options.mode == OpenOptions::Mode::write_new;
  const char* const operation = makes ? "create" : "open";
  CKPT_TRY(auto opened, options.mode == OpenOptions::Mode::read ? held_.open_to_read(path, flags, operation)
                                                                : held_.open(path, flags, operation));
  UniqueFd fd = std::move(opened.fd);
  if (!fd) {
    Error error = system_error(opened.reason, path, operation);
    if (opened.reason == ENOTDIR) error.code = Errc::not_found;
    return fail(std::move(error));
  }
  constexpr mode_t kFileMode = 0666;
  if (makes) opened.rights.apply(fd.get(), kFileMode);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail(system_error(errno, path, "open"));
  if (!S_ISREG(status.st_mode)) {
    return fail({.code = Errc::io, .message = path + ": not a regular file", .file = path});
  }
  if (options.mode == OpenOptions::Mode::write_recycled) CKPT_CHECK(check_recyclable(fd.get(), path, opened.rights));
  // O_DIRECT is set afterwards because an open that refuses it may already have created the file.
  bool direct = options.direct && !needs_other_alignment(fd.get());
  const int plain = flags & ~(O_NONBLOCK | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
  if (direct && ::fcntl(fd.get(), F_SETFL, plain | O_DIRECT) != 0) direct = false;
  if (!direct && ::fcntl(fd.get(), F_SETFL, plain) != 0) return fail(system_error(errno, path, "open"));

  const auto unused = std::find_if(files_.begin(), files_.end(), [](const OpenFile& file) { return !file.fd; });
  const auto index = static_cast<int>(unused - files_.begin());
  if (unused == files_.end()) files_.emplace_back();
  files_[static_cast<std::size_t>(index)] = {
      .fd = std::move(fd), .path = std::make_shared<const std::string>(path), .direct = direct, .in_flight = 0};
  return FileHandle{index};
}

bool PosixIo::is_direct(FileHandle file) const {
  const OpenFile* found = find(file);
  return found != nullptr && found->direct;
}

Result<FileInfo> PosixIo::info(FileHandle file) {
  const OpenFile* found = find(file);
  if (found == nullptr) return fail(Errc::internal, fmt::format("info: no open file {}", file.value));
  struct stat status {};
  if (::fstat(found->fd.get(), &status) != 0) return fail(system_error(errno, *found->path, "fstat"));
  return to_info(status);
}

Result<> PosixIo::allocate(FileHandle file, std::uint64_t bytes) {
  CKPT_TRY(OpenFile * found, idle(file, "allocate"));
  CKPT_TRY(const off_t length, to_offset(bytes, *found->path, "allocate"));
  if (length == 0) return {};  // fallocate calls this invalid
  int failed = 0;
  do {
    failed = ::fallocate(found->fd.get(), 0, 0, length);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return {};
  if (errno != EOPNOTSUPP && errno != ENOSYS) return fail(system_error(errno, *found->path, "allocate"));
  // No reservation here (NFS before 4.2, some FUSE): at least the size, so that direct writes do not extend the file.
  CKPT_TRY(const FileInfo now, info(file));
  return now.bytes < bytes ? truncate(file, bytes) : Result<>();
}

Result<> PosixIo::truncate(FileHandle file, std::uint64_t bytes) {
  CKPT_TRY(OpenFile * found, idle(file, "truncate"));
  CKPT_TRY(const off_t length, to_offset(bytes, *found->path, "truncate"));
  int failed = 0;
  do {
    failed = ::ftruncate(found->fd.get(), length);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return fail(system_error(errno, *found->path, "truncate"));
  return {};
}

Result<> PosixIo::sync(FileHandle file) {
  CKPT_TRY(OpenFile * found, idle(file, "fdatasync"));
  // Never again after an error: the kernel may have marked the lost pages clean, and a second call would succeed.
  if (::fdatasync(found->fd.get()) != 0) return fail(system_error(errno, *found->path, "fdatasync"));
  return {};
}

Result<> PosixIo::close(FileHandle file) {
  CKPT_TRY(OpenFile * found, idle(file, "close"));
  // After EINTR Linux has closed it (close(2), NOTES).
  if (::close(found->fd.release()) != 0 && errno != EINTR) return fail(system_error(errno, *found->path, "close"));
  return {};
}

Result<> PosixIo::read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) {
  const OpenFile* found = find(file);
  if (found == nullptr || found->direct) {
    return fail(Errc::internal, fmt::format("no open buffered file {}", file.value));
  }
  if (data.empty()) return {};
  Transfer transfer({.op = Request::Op::read, .offset = offset, .data = data.data(), .bytes = data.size()},
                    found->fd.get(), false, found->path);
  for (bool over = false; !over;) {
    const Transfer::Step step = transfer.next();
    CKPT_TRY(const off_t at, to_offset(step.offset, *found->path, "read"));
    const ssize_t got = ::pread(found->fd.get(), step.data, step.bytes, at);
    over = transfer.advance(got < 0 ? -errno : got);
  }
  CKPT_TRY(const std::size_t bytes, std::move(transfer).completion().bytes);
  if (bytes == data.size()) return {};
  return fail({.code = Errc::corrupt,
               .message = fmt::format("{}: read at {}: the file ends at {}, {} bytes short", *found->path, offset,
                                      offset + bytes, data.size() - bytes),
               .file = *found->path,
               .offset = offset + bytes});
}

Result<> PosixIo::write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) {
  const OpenFile* found = find(file);
  if (found == nullptr || found->direct) {
    return fail(Errc::internal, fmt::format("no open buffered file {}", file.value));
  }
  if (data.empty()) return {};
  // A request's buffer is not const because reads share the type; pwrite only reads it.
  Transfer transfer(
      {.op = Request::Op::write, .offset = offset, .data = const_cast<std::byte*>(data.data()), .bytes = data.size()},
      found->fd.get(), false, found->path);
  for (bool over = false; !over;) {
    const Transfer::Step step = transfer.next();
    CKPT_TRY(const off_t at, to_offset(step.offset, *found->path, "write"));
    const ssize_t put = ::pwrite(found->fd.get(), step.data, step.bytes, at);
    over = transfer.advance(put < 0 ? -errno : put);
  }
  CKPT_TRY(const std::size_t bytes, std::move(transfer).completion().bytes);
  static_cast<void>(bytes);  // a write is complete or an error
  return {};
}

// --- the queue ---------------------------------------------------------------------------------------------------

Result<Transfer> PosixIo::admit(const Request& request) {
  OpenFile* found = find(request.file);
  if (found == nullptr) return fail(Errc::internal, fmt::format("submit: no open file {}", request.file.value));
  if (in_flight_ == queue_depth_) return fail(Errc::internal, *found->path + ": submit: the queue is full");
  if (request.bytes == 0 || request.data == nullptr) {
    return fail(Errc::internal, *found->path + ": submit: a request without bytes");
  }
  std::uint64_t end = 0;
  if (__builtin_add_overflow(request.offset, request.bytes, &end)) {
    return fail(system_error(EFBIG, *found->path, "submit", request.offset));
  }
  CKPT_CHECK(to_offset(end, *found->path, "submit"));
  if (found->direct && (request.offset % kAlignment != 0 || request.bytes % kAlignment != 0 ||
                        reinterpret_cast<std::uintptr_t>(request.data) % kAlignment != 0)) {
    return fail(Errc::internal,
                fmt::format("{}: submit: {} bytes at {} from {} are not aligned for direct I/O", *found->path,
                            request.bytes, request.offset, static_cast<const void*>(request.data)));
  }
  ++found->in_flight;
  ++in_flight_;
  return Transfer(request, found->fd.get(), found->direct, found->path);
}

void PosixIo::retire(const Request& request) {
  OpenFile* found = find(request.file);
  if (found != nullptr) --found->in_flight;
  --in_flight_;
}

}  // namespace ckpt
