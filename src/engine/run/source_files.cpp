#include "engine/run/source_files.hpp"

#include <utility>

#include "engine/io/forwarding_io.hpp"
#include "engine/io/hold_directory.hpp"
#include "engine/run/checks.hpp"

namespace ckpt {
namespace {

tl::unexpected<Error> changed(const std::string& path, std::string_view how) {
  return fail({.code = Errc::changed,
               .message = path + ": the file was " + std::string(how) + " while it was being read",
               .file = path,
               .hint = "try again when nothing writes to it"});
}

/// Its bytes may be others, and its time set back; or they are the same, on a file system whose change times never rest.
tl::unexpected<Error> touched(const std::string& path) {
  auto error = changed(path, "changed");
  error.value().message += ": its change time has moved, its size and modification time have not";
  error.value().hint += "; if nothing does, this file system keeps no change times: copy the file to another one";
  return error;
}

/// Of a file by its name.
Result<> look_by_name(Io& io, const std::string& path, const FileInfo& was) {
  const auto now = io.stat(path);
  if (now) return check_unchanged(path, was, *now);
  if (now.error().code == Errc::not_found) return changed(path, "removed");
  return fail(now.error());
}

FileInfo info_of(const MapFile& file) {
  return {.bytes = file.bytes, .mtime_ns = file.mtime_ns, .device = file.device, .inode = file.inode};
}

/// Whether its inode changed although neither its names nor its rights did.
bool is_touched(const FileInfo& was, const FileInfo& now) {
  if (was.ctime_ns == 0 || now.ctime_ns == 0 || was.ctime_ns == now.ctime_ns) return false;
  return was.links == now.links && was.permissions == now.permissions && was.owner == now.owner &&
         was.group == now.group;
}

class SourceIo final : public ForwardingIo {
 public:
  SourceIo(Io& inner, std::shared_ptr<SourceFiles> files, const std::atomic<bool>* stop)
      : ForwardingIo(inner), files_(std::move(files)), stop_(stop) {}
  SourceIo(std::unique_ptr<Io> inner, std::shared_ptr<SourceFiles> files, const std::atomic<bool>* stop)
      : ForwardingIo(std::move(inner)), files_(std::move(files)), stop_(stop) {}

  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return std::unique_ptr<Io>(std::make_unique<SourceIo>(std::move(own), files_, stop_));
  }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    CKPT_CHECK(go_on(path));
    return ForwardingIo::list(path);
  }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    CKPT_CHECK(go_on("source"));
    return ForwardingIo::read_at(file, offset, data);
  }
  Result<FileInfo> stat(const std::string& path) override {
    CKPT_CHECK(go_on(path));
    CKPT_TRY(const FileInfo info, ForwardingIo::stat(path));
    if (info.kind == FileInfo::Kind::file) CKPT_CHECK(files_->see(path, info));
    return info;
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    CKPT_CHECK(go_on(path));
    CKPT_TRY(const FileHandle file, ForwardingIo::open(path, options));
    const auto seen = [&]() -> Result<> {
      CKPT_TRY(const FileInfo now, info(file));
      return files_->see(path, now);
    }();
    if (seen) return file;
    static_cast<void>(close(file));  // only read: the first error is reported
    return fail(seen.error());
  }

 private:
  Result<> go_on(const std::string& path) const {
    if (stop_ == nullptr || !stop_->load(std::memory_order_relaxed)) return {};
    return fail(Errc::interrupted, path + ": stopped");
  }

  std::shared_ptr<SourceFiles> files_;
  const std::atomic<bool>* stop_;
};

}  // namespace

Result<> check_unchanged(const std::string& path, const FileInfo& was, const FileInfo& now) {
  if (!was.is_same_file(now)) return changed(path, "replaced");
  if (was.bytes != now.bytes || was.mtime_ns != now.mtime_ns) return changed(path, "changed");
  return is_touched(was, now) ? touched(path) : Result<>();
}

Result<> check_unchanged(const std::string& path, const MapFile& was, const FileInfo& now) {
  return was.inode == 0 ? Result<>() : check_unchanged(path, info_of(was), now);
}

Result<> check_unchanged(Io& io, const Map& map, const std::string& root) {
  for (std::uint32_t i = 0; i < map.files.size(); ++i) {
    if (map.files[i].inode != 0) CKPT_CHECK(look_by_name(io, path_of(map, i, root), info_of(map.files[i])));
  }
  return {};
}

bool may_be_change(Errc code) {
  const int verdict = exit_code(code);
  return verdict == exit_code(Errc::corrupt) || verdict == exit_code(Errc::unsupported) ||
         verdict == exit_code(Errc::incomplete) || code == Errc::not_found || code == Errc::io;
}

Result<> SourceFiles::see(const std::string& path, const FileInfo& info) {
  const std::lock_guard lock(mutex_);
  const auto [first, is_new] = seen_.emplace(path, info);
  return is_new ? Result<>() : check_unchanged(path, first->second, info);
}

std::optional<FileInfo> SourceFiles::find(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = seen_.find(path);
  return found == seen_.end() ? std::nullopt : std::optional(found->second);
}

std::uint32_t SourceFiles::readers(const Map& map, const std::string& root) const {
  std::uint32_t readers = HoldOptions{}.readers;
  const std::lock_guard lock(mutex_);
  for (const auto& [path, seen] : seen_) readers &= readers_of(seen.permissions);
  for (std::uint32_t i = 0; i < map.files.size(); ++i) {
    const bool is_known = is_temporary(map.files[i]) || seen_.contains(path_of(map, i, root));
    if (!is_known) readers &= readers_of(0);
  }
  return readers;
}

Result<> SourceFiles::look_again(Io& io) const {
  std::map<std::string, FileInfo> seen;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
  }
  for (const auto& [path, was] : seen) CKPT_CHECK(look_by_name(io, path, was));
  return {};
}

std::unique_ptr<Io> make_source_io(Io& inner, std::shared_ptr<SourceFiles> files, const std::atomic<bool>* stop) {
  return std::make_unique<SourceIo>(inner, std::move(files), stop);
}

}  // namespace ckpt
