#include "engine/io/held_directories.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/beneath.hpp"
#include "engine/io/system_error.hpp"

namespace ckpt {
namespace {

constexpr mode_t kDirectoryMode = 0777;
constexpr mode_t kOwnerBits = 0700;
constexpr mode_t kGroupBits = 0070;
constexpr mode_t kNotForAll = 0775;  // nothing becomes world-writable

/// Without empty and "." parts: "" is the current directory.
std::string plain_path(std::string_view path) {
  const bool absolute = path.starts_with('/');
  std::string out;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part.empty() || part == ".") continue;
    if (!out.empty() || absolute) out += '/';
    out += part;
  }
  return out.empty() && absolute ? "/" : out;
}

/// The relative path of a plain path below another one: "" if equal, nothing if it is elsewhere.
std::optional<std::string> rest_below(std::string_view held, std::string_view path) {
  if (!path.starts_with(held) || (held.empty() && path.starts_with('/'))) return std::nullopt;
  std::string rest(path.substr(held.size()));
  if (!held.empty() && held != "/" && !rest.empty()) {
    if (rest.front() != '/') return std::nullopt;
    rest.erase(0, 1);
  }
  const bool may_leave = ("/" + rest + "/").find("/../") != std::string::npos;
  return may_leave ? std::nullopt : std::optional(std::move(rest));
}

UniqueFd open_directory(int at, const std::string& relative, bool beneath, int more) {
  UniqueFd fd;
  for (const int flags : {O_RDONLY | O_DIRECTORY | O_CLOEXEC, O_PATH | O_DIRECTORY | O_CLOEXEC}) {
    fd = beneath ? open_beneath(at, relative, flags) : UniqueFd(::openat(at, relative.c_str(), flags | more));
    if (fd || errno != EACCES) break;  // a directory may be usable but not listable
  }
  return fd;
}

/// Makes a plain path absolute by the working directory; "" if that is
/// unknown.
std::string absolute_path(const std::string& plain) {
  if (plain.starts_with('/')) return plain;
  std::array<char, PATH_MAX> text{};
  if (::getcwd(text.data(), text.size()) == nullptr || text.front() != '/') return {};
  std::string at = text.data();  // without links, so that a part goes with the ".." after it
  std::string_view rest = plain;
  for (; rest == ".." || rest.starts_with("../"); rest.remove_prefix(std::min<std::size_t>(3, rest.size())))
    at.erase(std::max<std::size_t>(at.rfind('/'), 1));
  if (rest.empty()) return at;
  return at == "/" ? "/" + std::string(rest) : at + "/" + std::string(rest);
}

/// The path of a descriptor by /proc; "" if unknown.
std::string real_path_of(int fd) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), text.data(), text.size());
  if (length <= 0 || static_cast<std::size_t>(length) >= text.size() || text.front() != '/') return {};
  return {text.data(), static_cast<std::size_t>(length)};
}

bool is_empty_directory(int fd) {
  struct Closer {
    void operator()(DIR* directory) const { ::closedir(directory); }
  };
  UniqueFd own(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return false;
  const std::unique_ptr<DIR, Closer> directory(::fdopendir(own.get()));
  if (!directory) return false;
  static_cast<void>(own.release());
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
  return true;
}

bool leads_elsewhere(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

Error link_error(const std::string& path, const char* operation) {
  return {.code = Errc::linked,
          .message = fmt::format("{}: {}: a symbolic link; ckpt does not change files through links", path, operation),
          .file = path,
          .hint = "replace the link with its target, or remove it"};
}

}  // namespace

// --- rights --------------------------------------------------------------------------------------------------------

NewRights::Owned NewRights::wanted(Owned made, uid_t self, mode_t usual) const {
  if (store) {
    const bool of_another = self == 0 && store->owner != 0;
    const bool shared = (store->mode & S_ISGID) != 0;
    if (of_another) made.owner = store->owner;
    if (self == 0 && (of_another || shared)) made.group = store->group;
    if (of_another) made.mode = (made.mode | (store->mode & kNotForAll & usual)) & (store->mode | kOwnerBits);
    if (shared) made.mode |= store->mode & kGroupBits & usual;
    if (shared && usual == kDirectoryMode) made.mode |= S_ISGID;
  }
  made.mode &= allowed | S_ISGID;
  return made;
}

void NewRights::apply(int fd, mode_t usual) const {
  if (!store) return;
  struct stat status {};
  const uid_t self = ::geteuid();
  if (::fstat(fd, &status) != 0 || status.st_uid != self) return;
  // Anyone with write permission there may have replaced it by another directory of ours. An empty one proves nothing.
  if (S_ISDIR(status.st_mode) && !is_empty_directory(fd)) return;
  constexpr mode_t kAll = 07777;
  const Owned made{.owner = status.st_uid, .group = status.st_gid, .mode = status.st_mode & kAll};
  const Owned end = wanted(made, self, usual);
  // The mode last: a change of owner takes bits away.
  if ((end.owner != made.owner || end.group != made.group) && ::fchown(fd, end.owner, end.group) != 0) return;
  if (end.mode != made.mode || end.group != made.group) static_cast<void>(::fchmod(fd, end.mode));
}

// --- held directories -----------------------------------------------------------------------------------------------

struct HeldDirectories::Directory {
  UniqueFd fd{};
  struct stat status {};
};

struct HeldDirectories::Found {
  std::string held{};  ///< its path, as given
  std::string rest{};  ///< of the path that was asked for, below it
  std::shared_ptr<const Directory> directory{};
  NewRights rights{};
  bool reads = false;
};

struct HeldDirectories::State {
  struct Entry {
    std::uint64_t id = 0;
    std::string path{};  ///< plain
    std::string real{};  ///< absolute, without links; "" if unknown
    std::shared_ptr<const Directory> directory{};
    HoldOptions options{};
  };
  std::mutex mutex;
  std::vector<Entry> entries;  // guarded by mutex
  std::uint64_t last_id = 0;   // guarded by mutex

  bool is_empty() {
    const std::lock_guard lock(mutex);
    return entries.empty();
  }

  /// The innermost held directory above `path`, or at it with `itself`, with the options of all of them.
  std::optional<Found> find(const std::string& path, bool itself) {
    if (is_empty()) return std::nullopt;
    const std::string plain = plain_path(path);
    const std::string absolute = absolute_path(plain);
    const std::lock_guard lock(mutex);
    std::optional<Found> out;
    std::size_t nearest_store = SIZE_MAX;
    mode_t allowed = kDirectoryMode;
    bool reads = false;
    std::optional<NewRights::Owned> store;
    for (const Entry& entry : entries) {
      auto rest = rest_below(entry.path, plain);
      const std::string& real = entry.real.empty() ? entry.path : entry.real;
      if (!rest && real.starts_with('/') && !absolute.empty()) rest = rest_below(real, absolute);
      if (!rest || (rest->empty() && !itself)) continue;
      allowed &= entry.options.readers;
      reads = reads || entry.options.reads;
      if (entry.options.store && rest->size() < nearest_store) {
        const struct stat& status = entry.directory->status;
        nearest_store = rest->size();
        store = NewRights::Owned{.owner = status.st_uid, .group = status.st_gid, .mode = status.st_mode};
      }
      if (out && out->rest.size() <= rest->size()) continue;
      out = Found{.held = entry.path, .rest = *std::move(rest), .directory = entry.directory};
    }
    if (out) out->rights = {.store = store, .allowed = allowed};
    if (out) out->reads = reads;
    return out;
  }
};

class HeldDirectories::Handle final : public HeldDirectory {
 public:
  Handle(std::shared_ptr<State> state, std::uint64_t id) : state_(std::move(state)), id_(id) {}
  ~Handle() override {
    const std::lock_guard lock(state_->mutex);
    std::erase_if(state_->entries, [this](const State::Entry& entry) { return entry.id == id_; });
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

 private:
  std::shared_ptr<State> state_;
  std::uint64_t id_;
};

HeldDirectories::HeldDirectories() : state_(std::make_shared<State>()) {}

Result<> HeldDirectories::check_in_place(const Found& found, const char* operation) {
  struct stat now {};
  const std::string path = found.held.empty() ? "." : found.held;
  const struct stat& was = found.directory->status;
  if (::stat(path.c_str(), &now) == 0 && now.st_dev == was.st_dev && now.st_ino == was.st_ino) return {};
  return fail({.code = Errc::changed,
               .message = fmt::format("{}: {}: the directory was moved or replaced while in use", path, operation),
               .file = path,
               .hint = "try again when nothing else changes it"});
}

Error HeldDirectories::refusal(const Found& found, int reason, const std::string& path, const char* operation) {
  const bool may_be_link = reason == ELOOP || reason == EXDEV || reason == ENOTDIR;
  const std::string link = may_be_link ? first_link(found.directory->fd.get(), found.rest) : std::string();
  if (link.empty()) return system_error(reason, path, operation);
  return link_error(join_path(found.held, link), operation);
}

Result<std::unique_ptr<HeldDirectory>> HeldDirectories::hold(const std::string& path, const HoldOptions& options) {
  constexpr const char* kOperation = "open directory";
  const std::string plain = plain_path(path);
  auto found = state_->find(path, true);
  std::shared_ptr<const Directory> directory;
  if (found) CKPT_CHECK(check_in_place(*found, kOperation));
  if (found && found->rest.empty()) {
    directory = found->directory;
  } else {
    auto made = std::make_shared<Directory>();
    made->fd = found ? open_directory(found->directory->fd.get(), found->rest, true, 0)
                     : open_directory(AT_FDCWD, plain.empty() ? "." : plain, false, options.follow ? 0 : O_NOFOLLOW);
    const int reason = errno;
    if (!made->fd && found) return fail(refusal(*found, reason, path, kOperation));
    if (!made->fd && leads_elsewhere(plain)) return fail(link_error(path, kOperation));
    if (!made->fd) return fail(system_error(reason, path, kOperation));
    if (::fstat(made->fd.get(), &made->status) != 0) return fail(system_error(errno, path, kOperation));
    directory = std::move(made);
  }
  std::string real = real_path_of(directory->fd.get());
  if (real == plain) real.clear();
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t id = ++state_->last_id;
  state_->entries.push_back(
      {.id = id, .path = plain, .real = std::move(real), .directory = std::move(directory), .options = options});
  return std::unique_ptr<HeldDirectory>(std::make_unique<Handle>(state_, id));
}

Result<ChangePlace> HeldDirectories::place(const std::string& path, const char* operation) const {
  const auto found = state_->find(path, false);
  if (!found) return ChangePlace{.name = path};
  CKPT_CHECK(check_in_place(*found, operation));
  ChangePlace out{.keeps = found->directory, .directory = found->directory->fd.get(), .rights = found->rights};
  const std::size_t slash = found->rest.rfind('/');
  if (slash == std::string::npos) {
    out.name = found->rest;
    return out;
  }
  out.name = found->rest.substr(slash + 1);
  auto parent = std::make_shared<UniqueFd>(
      open_beneath(found->directory->fd.get(), found->rest.substr(0, slash), O_PATH | O_DIRECTORY));
  const int reason = errno;
  if (!*parent) return fail(refusal(*found, reason, path, operation));
  out.directory = parent->get();
  out.keeps = std::move(parent);
  return out;
}

Result<HeldDirectories::Opened> HeldDirectories::open_found(const Found& found, const std::string& path, int flags,
                                                            const char* operation) {
  constexpr mode_t kFileMode = 0666;
  const std::string relative = found.rest.empty() ? "." : found.rest;
  Opened out{.fd = open_beneath(found.directory->fd.get(), relative, flags, found.rights.creation_mode(kFileMode)),
             .rights = found.rights};
  out.reason = out.fd ? 0 : errno;
  if (out.reason != ELOOP && out.reason != EXDEV && out.reason != ENOTDIR) return out;
  Error error = refusal(found, out.reason, path, operation);
  if (error.code == Errc::linked) return fail(std::move(error));
  return out;
}

namespace {

HeldDirectories::Opened open_by_path(const std::string& path, int flags) {
  constexpr mode_t kFileMode = 0666;
  HeldDirectories::Opened out{.fd = UniqueFd(::open(path.c_str(), flags | O_CLOEXEC, kFileMode))};
  out.reason = out.fd ? 0 : errno;
  return out;
}

}  // namespace

Result<HeldDirectories::Opened> HeldDirectories::open(const std::string& path, int flags, const char* operation) const {
  const auto found = state_->find(path, true);
  if (!found) return open_by_path(path, flags);
  CKPT_CHECK(check_in_place(*found, operation));
  return open_found(*found, path, flags, operation);
}

bool HeldDirectories::holds_reads(const std::string& path) const {
  const auto found = state_->find(path, true);
  return found && found->reads;
}

Result<HeldDirectories::Opened> HeldDirectories::open_to_read(const std::string& path, int flags,
                                                              const char* operation) const {
  const auto found = state_->find(path, true);
  // A held directory is read by its descriptor: it is listed while it is removed.
  if (!found || (!found->reads && !found->rest.empty())) return open_by_path(path, flags);
  return open_found(*found, path, flags, operation);
}

}  // namespace ckpt
